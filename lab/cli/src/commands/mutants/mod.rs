//! `mutants`: random schedules of whole operations, without a bug and with each injected bug.
//!
//! Only builds with the feature `mutants` have the checker.

#[cfg(not(feature = "mutants"))]
use crate::failure::{Failure, Result};
#[cfg(not(feature = "mutants"))]
use std::process::ExitCode;

#[cfg(feature = "mutants")]
mod checker;
#[cfg(feature = "mutants")]
pub(crate) use checker::run;

const HELP: &str = "\
Examples:
  nextent-lab mutants                               all bugs; takes minutes
  nextent-lab mutants --seed 190                    replays schedule 190
  nextent-lab mutants --seed 190 --bug lost-wakeup  replays it with a bug

Exit status:
  0  Every bug was found, and nothing else; or the schedules passed.
  1  A bug was not found, or a schedule failed.
  2  The arguments cannot be used.";

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Args {
    /// List the bugs
    #[arg(long, conflicts_with_all = ["bug", "seed", "count"])]
    pub(crate) list: bool,
    /// Inject this bug
    #[arg(long, value_name = "NAME", requires = "seed")]
    pub(crate) bug: Option<String>,
    /// Run only schedules from this number on
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Run so many schedules, until one fails
    #[arg(long, value_name = "N", requires = "seed", default_value_t = 1)]
    pub(crate) count: u64,
}

/// `nextent-lab mutants`.
#[cfg(not(feature = "mutants"))]
pub(crate) fn run(_: &Args) -> Result<ExitCode> {
    let text = "this build cannot inject bugs: build it with the feature `mutants`, or run \
        `cargo xtask mutants`";
    Err(Failure::usage(text))
}
