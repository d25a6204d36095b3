//! `nextent`: make, mount, read, change and check ext4 images in user space.
//!
//! Translation only: arguments to calls of the library, errors to one line and
//! an exit code. No rule of the file system lives here.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod failure;
mod image;
mod location;
mod names;
mod show;
mod size;
mod transfer;

use clap::Parser;
use failure::Failure;
use names::Called;
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let done = match names::called(std::env::args_os().collect()) {
        Called::Command(words) => match args::Args::try_parse_from(&words) {
            Ok(args) => commands::run(args.command),
            Err(error) => return usage(&error, &words),
        },
        Called::Unmount(words) => commands::mount::unmount(&words),
    };
    done.unwrap_or_else(Failure::report)
}

/// Prints help to stdout and exits well; anything else is a usage error in one line, whose number
/// fsck(8) wants to be 16 and mount(8) 1.
fn usage(error: &clap::Error, words: &[OsString]) -> ExitCode {
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
    let command = words.get(1).and_then(|word| word.to_str());
    ExitCode::from(match command {
        Some("fsck") => 16,
        Some("mount") => 1,
        _ => 2,
    })
}
