//! The commands, one module each.

mod mkfs;

use crate::failure::Failure;
use clap::Subcommand;

/// Every command with its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make an ext2, ext3 or ext4 file system, with mke2fs's options
    Mkfs(Box<mkfs::Args>),
}

impl Command {
    /// Does it.
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self {
            Self::Mkfs(args) => mkfs::run(&args),
        }
    }
}
