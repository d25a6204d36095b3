//! The commands, each in its own module. Arguments are in `args` or in the module.

mod change;
pub(crate) mod cp;
mod each;
mod fallocate;
pub(crate) mod fsck;
pub(crate) mod info;
pub(crate) mod length;
mod link;
mod list;
pub(crate) mod mkfs;
mod mode;
#[cfg(all(feature = "mount", target_os = "linux"))]
pub(crate) mod mount;
mod owner;
mod read;
mod remove;
mod replay;
mod stat;
#[cfg(all(feature = "mount", target_os = "linux"))]
pub(crate) mod status;
mod symbolic;
pub(crate) mod tar;
mod tree;
mod walk;

use crate::args::Command;
use crate::failure::Result;
use std::process::ExitCode;

/// Runs a command and returns its exit code.
pub(crate) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Mkfs(args) => return mkfs::run(&args),
        #[cfg(all(feature = "mount", target_os = "linux"))]
        Command::Mount(args) => return mount::run(&args),
        #[cfg(all(feature = "mount", target_os = "linux"))]
        Command::Umount(args) => return mount::umount(&args),
        #[cfg(all(feature = "mount", target_os = "linux"))]
        Command::Status(args) => status::run(&args)?,
        Command::Fsck(args) => return fsck::run(&args),
        Command::Info(args) => info::run(&args)?,
        Command::Cp(args) => return cp::run(&args),
        Command::Tar(args) => return tar::run(&args),
        Command::Ls(args) => list::ls(&args)?,
        Command::Tree(args) => tree::tree(&args)?,
        Command::Cat(args) => read::cat(&args)?,
        Command::Stat(args) => stat::run(&args)?,
        Command::Mkdir(args) => change::mkdir(&args)?,
        Command::Rm(args) => remove::rm(&args)?,
        Command::Mv(args) => change::mv(&args)?,
        Command::Ln(args) => link::ln(&args)?,
        Command::Chmod(args) => mode::chmod(&args)?,
        Command::Chown(args) => owner::chown(&args)?,
        Command::Truncate(args) => change::truncate(&args)?,
        Command::Fallocate(args) => fallocate::run(&args)?,
        Command::Replay(args) => replay::run(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}
