//! One command a file, with its arguments.

pub(crate) mod bench;
pub(crate) mod designs;
pub(crate) mod simulate;

use crate::args::Command;
use crate::failure::Result;
use std::process::ExitCode;

/// Runs a command and returns its exit code.
pub(crate) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Bench(args) => bench::run(*args),
        Command::Simulate(args) => simulate::run(*args),
        Command::Designs(args) => designs::run(&args),
        #[cfg(feature = "generate")]
        Command::Generate(args) => crate::generate::run(&args),
    }
}
