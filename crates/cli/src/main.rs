//! `nextent`: make, read, change and check ext4 images without mounting them.
//!
//! Translation only: arguments to calls of the library, errors to one line and
//! an exit code. No rule of the file system lives here.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod failure;
mod image;
mod location;
mod show;
mod size;
mod transfer;

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

/// Prints help to stdout and exits well; anything else is a usage error in one line, whose number
/// fsck(8) wants to be 16.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Nothing can be done about a closed terminal here.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        eprint!("{text}");
    } else {
        let words: Vec<&str> = text
            .lines()
            .map(str::trim)
            .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
            .filter(|line| !line.is_empty())
            .collect();
        let line = words.join(" ");
        let line = line.strip_prefix("error: ").unwrap_or(&line);
        eprintln!("nextent: {line} (see --help)");
    }
    let is_fsck = std::env::args_os().nth(1).is_some_and(|word| word == "fsck");
    ExitCode::from(if is_fsck { 16 } else { 2 })
}
