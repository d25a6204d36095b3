//! `mount`: serves a volume over FUSE, in the foreground or background; exit codes of mount(8).

mod background;
mod ending;
mod events;
mod fstab;
mod memory;
mod notify;
mod old_server;
pub(crate) mod options;
mod remount;
mod report;
mod serve;
mod signals;
mod unmount;
mod utab;

use crate::failure::{Failure, Result};
use crate::target::ImageSpec;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(crate) use unmount::{Args as UmountArgs, command as umount, run as unmount};

/// The arguments are wrong, or the caller lacks permission.
pub(crate) const USAGE: u8 = 1;
/// The system lacks something.
const SYSTEM: u8 = 2;
/// The mount failed.
const FAILED: u8 = 32;

#[derive(Debug, clap::Args)]
#[command(after_long_help = options::HELP)]
pub(crate) struct Args {
    /// The image, block device or partition
    #[arg(value_hint = clap::ValueHint::FilePath)]
    pub(crate) image: ImageSpec,
    /// The directory to mount on; with -o remount it may be the only argument
    pub(crate) mountpoint: Option<PathBuf>,
    /// Options of fuse2fs and mount(8), separated by commas
    #[arg(short = 'o', value_name = "OPTS")]
    pub(crate) options: Vec<OsString>,
    /// Stay in the foreground until unmounted
    #[arg(short = 'f', long)]
    pub(crate) foreground: bool,
    /// Threads that answer requests [default: one per core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Report on stdout once mounted, then leave the terminal
    #[arg(long, hide = true)]
    pub(crate) notify_when_mounted: bool,
    /// Ignore unknown options of -o, for `mount -s`
    #[arg(long, hide = true)]
    pub(crate) sloppy: bool,
    /// Set-id programs and device files have an effect if root mounts, as by libfuse's helper of
    /// mount(8)
    #[arg(long, hide = true)]
    pub(crate) by_mount: bool,
    /// Accept record locks of other processes on the image, for fuse2fs, whose callers hold them
    #[arg(long, hide = true)]
    pub(crate) caller_locks: bool,
    /// Check the arguments only, for `mount -f`
    #[arg(long, hide = true)]
    pub(crate) fake: bool,
}

/// `nextent mount`.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut options = options::Options { sloppy: args.sloppy, ..options::Options::default() };
    if args.by_mount && rustix::process::getuid().is_root() {
        options.suid_and_dev();
    }
    let mut lists = Vec::new();
    for list in &args.options {
        let list = list.to_str().ok_or_else(|| usage("an option is not UTF-8"))?;
        lists.push(list.to_owned());
    }
    if lists.iter().any(|list| asks_remount(list)) {
        let point = args.point();
        if !args.fake {
            remount::run(point, &lists, args.sloppy)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    for list in &lists {
        options.parse(list).map_err(usage)?;
    }
    options.check().map_err(usage)?;
    if args.mountpoint.is_none() {
        return Err(usage("MOUNTPOINT is missing: on which directory?"));
    }
    if options.offset > 0 && args.image.is_part() {
        return Err(usage("offset= and @PART exclude each other"));
    }
    if args.threads == Some(0) {
        return Err(usage("--threads needs at least one"));
    }
    if args.fake {
        return Ok(ExitCode::SUCCESS);
    }
    if args.foreground {
        serve::run(args, &options)?;
    } else {
        return background::run();
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a list of options asks for a remount.
fn asks_remount(list: &str) -> bool {
    list.split(',').any(|word| word == "remount")
}

impl Args {
    /// The mount point. The caller has checked that it is given.
    fn point(&self) -> &Path {
        self.mountpoint.as_deref().unwrap_or(Path::new(AsRef::<OsStr>::as_ref(&self.image)))
    }
}

fn usage(text: impl Into<String>) -> Failure {
    Failure::new(text).with_code(USAGE)
}
