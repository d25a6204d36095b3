//! `nextent`: make, read, change, check and mount ext4 images.
//!
//! Turns arguments into calls of the library, and errors into one line and an exit code. No rule of
//! the file system is here.
#![forbid(unsafe_code)]
// Output goes through `failure`, which escapes control characters and survives closed streams.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod args;
mod commands;
mod disk;
mod e2fsprogs;
mod failure;
mod faked;
#[cfg(feature = "generate")]
mod generate;
mod image;
mod location;
mod log;
mod names;
mod overlay;
mod progress;
mod scope;
mod show;
mod size;
mod target;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    failure::escape_panics();
    faked::hand_over();
    #[cfg(all(feature = "mount", target_os = "linux"))]
    if let Some(words) = names::unmount() {
        return commands::mount::unmount(&words).unwrap_or_else(failure::Failure::report);
    }
    #[cfg(feature = "generate")]
    if let Some(dir) = generate::asked() {
        let done = generate::run(&dir);
        return done.map_or_else(failure::Failure::report, |()| ExitCode::SUCCESS);
    }
    if let Some(code) = e2fsprogs::run() {
        return code;
    }
    let args = match args::Args::try_parse_from(names::arguments()) {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    match commands::run(args.command) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

/// Prints help to stdout with exit code 0. Anything else is a usage error on one line, with the
/// exit code 16 for fsck(8) and 1 for mount(8).
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match error.print() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failure::Failure::from(error).report(),
        };
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        use std::io::Write;
        let text = error.render().to_string();
        // Standard error may be closed.
        let _ = std::io::stderr().write_all(text.as_bytes());
    } else {
        failure::complain(&format!("{} (see --help)", failure::usage_text(error)));
    }
    let command = names::arguments().into_iter().nth(1).unwrap_or_default();
    ExitCode::from(match command.to_str() {
        Some("fsck") => 16,
        #[cfg(all(feature = "mount", target_os = "linux"))]
        Some("mount" | "umount") => commands::mount::USAGE,
        _ => 2,
    })
}
