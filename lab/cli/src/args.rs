//! The command line.

use clap::{Parser, Subcommand};

/// Measure the engine, its historical designs and simulated cores.
///
/// Sizes take k, m, g and t.
#[derive(Debug, Parser)]
#[command(name = "nextent-lab", version, max_term_width = 100, subcommand_required = true)]
#[command(arg_required_else_help = true, args_override_self = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a workload on the library and on mounted directories, side by side
    #[cfg(feature = "measure")]
    Bench(Box<crate::commands::bench::Args>),
    /// Run a workload on 1 to 256 simulated cores
    #[cfg(feature = "measure")]
    Simulate(Box<crate::commands::simulate::Args>),
    /// List the allocator and journal designs that `bench` and `simulate` can run
    #[cfg(feature = "measure")]
    Designs(crate::commands::designs::Args),
    /// Run random schedules of whole operations, without a bug and with each injected bug
    Mutants(crate::commands::mutants::Args),
    /// Write man pages and completions for the shells below a directory
    #[cfg(feature = "generate")]
    #[command(hide = true)]
    Generate(crate::generate::Args),
}
