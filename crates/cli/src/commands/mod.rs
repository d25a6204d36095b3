//! The commands, each in its own module. Arguments are in `args` or in the module.

mod change;
pub(crate) mod cp;
mod date;
pub(crate) mod diff;
mod each;
pub(crate) mod edit;
mod fallocate;
pub(crate) mod fsck;
pub(crate) mod info;
mod info_disk;
pub(crate) mod length;
mod link;
mod list;
pub(crate) mod mkfs;
pub(crate) mod mknod;
mod mode;
#[cfg(all(feature = "mount", target_os = "linux"))]
pub(crate) mod mount;
pub(crate) mod overlay;
mod owner;
mod plot;
mod read;
mod remove;
mod replay;
pub(crate) mod resize;
#[cfg(all(feature = "mount", target_os = "linux"))]
pub(crate) mod serve;
mod stat;
#[cfg(all(feature = "mount", target_os = "linux"))]
pub(crate) mod status;
mod symbolic;
pub(crate) mod sync;
pub(crate) mod tar;
pub(crate) mod touch;
mod tree;
pub(crate) mod trim;
pub(crate) mod tune;
mod walk;
pub(crate) mod xattr;

use crate::args::Command;
use crate::failure::Result;
use crate::scope::Scope;
use std::process::ExitCode;

/// Runs a command and returns its exit code.
pub(crate) fn run(command: Command) -> Result<ExitCode> {
    let scope = Scope::EachPath;
    match command {
        Command::Mkfs(args) => return mkfs::run(&args),
        #[cfg(all(feature = "mount", target_os = "linux"))]
        Command::Mount(args) => return mount::run(&args),
        #[cfg(all(feature = "mount", target_os = "linux"))]
        Command::Umount(args) => return mount::umount(&args),
        #[cfg(all(feature = "mount", target_os = "linux"))]
        Command::Status(args) => status::run(&args)?,
        #[cfg(all(feature = "mount", target_os = "linux"))]
        Command::Serve(args) => serve::run(&args)?,
        Command::Fsck(args) => return fsck::run(&args),
        Command::Info(args) => info::run(&args)?,
        Command::Tune(args) => return tune::run(&args),
        Command::Resize(args) => resize::run(&args)?,
        Command::Diff(args) => return diff::run(&args),
        Command::Sync(args) => sync::run(&args)?,
        Command::Cp(args) => cp::run(&args, scope)?,
        Command::Tar(args) => return tar::run(&args),
        Command::Ls(args) => list::ls(&args, scope)?,
        Command::Tree(args) => tree::tree(&args)?,
        Command::Cat(args) => read::cat(&args, scope)?,
        Command::Stat(args) => stat::run(&args, scope)?,
        Command::Mkdir(args) => change::mkdir(&args, scope)?,
        Command::Rm(args) => remove::rm(&args, scope)?,
        Command::Mv(args) => change::mv(&args, scope)?,
        Command::Ln(args) => link::ln(&args, scope)?,
        Command::Chmod(args) => mode::chmod(&args, scope)?,
        Command::Chown(args) => owner::chown(&args, scope)?,
        Command::Truncate(args) => change::truncate(&args, scope)?,
        Command::Fallocate(args) => fallocate::run(&args, scope)?,
        Command::Touch(args) => touch::run(&args, scope)?,
        Command::Mknod(args) => mknod::run(&args, scope)?,
        Command::Getxattr(args) => xattr::get(&args, scope)?,
        Command::Setxattr(args) => xattr::set(&args, scope)?,
        Command::Trim(args) => trim::run(&args)?,
        Command::CommitOverlay(args) => overlay::commit(&args)?,
        Command::Rebase(args) => overlay::rebase(&args)?,
        Command::Edit(args) => edit::run(&args)?,
        Command::Replay(args) => replay::run(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}
