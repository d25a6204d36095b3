//! The `nextent` command: translation between people and the engine, no file-system rule.
//!
//! Each command is a module of [`commands`] with its arguments and a `run`. What goes wrong is one
//! line on standard error and an exit code.
#![forbid(unsafe_code)]

mod commands;
mod failure;
mod size;

use clap::Parser;
use std::process::ExitCode;

/// ext4 images made, read and changed without a kernel
#[derive(Debug, Parser)]
#[command(name = "nextent", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("nextent: {failure}");
            failure.exit_code()
        }
    }
}
