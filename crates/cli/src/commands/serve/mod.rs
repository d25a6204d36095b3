//! `serve`: offers an image to other programs.

mod nbd;

use crate::failure::Result;

/// Arguments of `serve`.
#[derive(Debug, clap::Args)]
#[command(subcommand_value_name = "PROTOCOL", subcommand_help_heading = "Protocols")]
pub(crate) struct Args {
    #[command(subcommand)]
    protocol: Protocol,
}

/// The protocol of the clients.
#[derive(Debug, clap::Subcommand)]
enum Protocol {
    /// Serve an image, or a partition, as a network block device, until SIGINT or SIGTERM
    Nbd(nbd::Args),
}

/// `nextent serve`.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.protocol {
        Protocol::Nbd(args) => nbd::run(args),
    }
}
