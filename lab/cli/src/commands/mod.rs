//! One command a file, with its arguments.

#[cfg(feature = "measure")]
pub(crate) mod bench;
#[cfg(feature = "measure")]
pub(crate) mod designs;
pub(crate) mod mutants;
#[cfg(feature = "measure")]
pub(crate) mod simulate;

use crate::args::Command;
use crate::failure::Result;
use std::process::ExitCode;

/// Runs a command and returns its exit code.
pub(crate) fn run(command: Command) -> Result<ExitCode> {
    match command {
        #[cfg(feature = "measure")]
        Command::Bench(args) => bench::run(*args),
        #[cfg(feature = "measure")]
        Command::Simulate(args) => simulate::run(*args),
        #[cfg(feature = "measure")]
        Command::Designs(args) => designs::run(&args),
        Command::Mutants(args) => mutants::run(&args),
        #[cfg(feature = "generate")]
        Command::Generate(args) => crate::generate::run(&args),
    }
}
