//! `nextent-lab`: benchmarks, historical designs, simulated cores and injected bugs.
//!
//! The program translates only: arguments to calls of the laboratory's libraries, errors to one
//! line and an exit code.
#![forbid(unsafe_code)]
// Lines go through `failure`, which survives closed streams.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod args;
mod commands;
mod failure;
#[cfg(feature = "generate")]
mod generate;
#[cfg(feature = "measure")]
mod output;
#[cfg(feature = "measure")]
mod units;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match args::Args::try_parse() {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    match commands::run(args.command) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

/// Prints help to standard output and succeeds; prints a usage error on one line and exits with 2.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match error.print() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failure::Failure::from(error).report(),
        };
    }
    let text = error.render().to_string();
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        failure::complain_in_full(&text);
        return ExitCode::from(2);
    }
    let words: Vec<&str> = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .filter(|line| !line.is_empty())
        .collect();
    let line = words.join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    failure::Failure::usage(format!("{line} (see --help)")).report()
}
