//! `umount`, and `umount.fuse.nextent`, the helper by which umount(8) returns only when all data is
//! durable.
//!
//! The kernel ends a FUSE mount without waiting for its server. The server then closes the image
//! and ends. This module waits for that, if the kernel has ended the connection. It does not wait
//! while the mount is also attached elsewhere (bound to another directory, held by another mount
//! namespace), since the server goes on then.
//!
//! | the server is found by | this module waits for |
//! |---|---|
//! | the socket of `nextent status`, which is named by the mount's device number | the end of the process |
//! | the lock of the image, if that is the mount's source and there is no socket | the lock |

use crate::commands::status::socket;
use crate::failure::{Context, Failure, Result, complain};
use crate::show;
use crate::target::ImageSpec;
use nextent_device::{FileOptions, OpenError, User};
use nextent_fuse::{Control, Detach, Mounted};
use nextent_sync::{Duration, now, sleep};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::io::Error;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The exit code of umount(8) for a failure.
const FAILED: u8 = 32;

/// The longest time to wait for a server to close an image.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time after which a connection that still exists is taken to be in use elsewhere. Programs
/// that list mounts hold one for a moment.
const IN_USE_AFTER: Duration = Duration::from_millis(200);
/// The time between two looks.
const PERIOD: Duration = Duration::from_millis(10);

/// `nextent umount`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The mount point
    mountpoint: PathBuf,
    /// Detach now, unmount when no program uses it; does not wait
    #[arg(short, long)]
    lazy: bool,
    /// Unanswered requests fail: for a server that does not answer
    #[arg(short, long)]
    force: bool,
}

/// Unmounts by `nextent umount`.
pub(crate) fn command(args: &Args) -> Result<ExitCode> {
    unmount(&args.mountpoint, args.lazy, args.force)
}

/// Unmounts the directory among `words`, the arguments of umount(8)'s helper.
pub(crate) fn run(words: &[OsString]) -> Result<ExitCode> {
    let is_flag = |word: &&OsString| word.as_encoded_bytes().starts_with(b"-");
    let flags: Vec<_> = words.iter().filter(is_flag).collect();
    let has = |letter| flags.iter().any(|word| word.as_encoded_bytes().contains(&letter));
    match words.iter().find(|word| !is_flag(word)) {
        Some(place) => unmount(Path::new(place), has(b'l'), has(b'f')),
        None => Err(Failure::new("which directory?").with_code(super::USAGE)),
    }
}

fn unmount(place: &Path, lazy: bool, force: bool) -> Result<ExitCode> {
    let done = unmount_at(place, lazy, force);
    done.map_err(|failure| failure.with_code(FAILED))?;
    Ok(ExitCode::SUCCESS)
}

fn unmount_at(place: &Path, lazy: bool, force: bool) -> Result<()> {
    let what = || format!("{}: unmount", show::path(place));
    let point = absolute(place).context(|| show::path(place))?;
    let mounted = Mounted::at(&point).filter(Mounted::is_nextent);
    let server = mounted.filter(|_| !lazy).map(Serving::new);
    let mut flags = UnmountFlags::NOFOLLOW;
    flags.set(UnmountFlags::DETACH, lazy);
    flags.set(UnmountFlags::FORCE, force);
    match rustix::mount::unmount(&point, flags) {
        // A user's own mount.
        Err(Errno::PERM) if Mounted::at(&point).is_some() => {
            let how = if lazy { Detach::Lazy } else { Detach::Unused };
            nextent_fuse::unmount(&point, how).context(what)?;
        }
        done => done.map_err(Error::from).context(what)?,
    }
    if let Some(server) = server {
        server.wait(place);
    }
    Ok(())
}

/// The absolute path of a mount point, if possible without a request to the mount: its server may
/// not answer.
fn absolute(place: &Path) -> std::io::Result<PathBuf> {
    if let (Some(parent), Some(name)) = (place.parent(), place.file_name()) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let point = parent.canonicalize()?.join(name);
        if Mounted::at(&point).is_some() {
            return Ok(point);
        }
    }
    place.canonicalize()
}

/// The server of a mount, as it is known before the mount ends.
struct Serving {
    /// The process, if it reports its status.
    process: Option<OwnedFd>,
    /// The mount's source: the image, or another name.
    image: PathBuf,
    /// The processes that hold the image's lock.
    holders: Vec<u32>,
    control: Option<Control>,
}

impl Serving {
    fn new(mounted: Mounted) -> Self {
        let control = Control::open(mounted.device);
        Self {
            process: server_of(&mounted),
            holders: holders(&mounted.source).unwrap_or_default(),
            image: mounted.source,
            control,
        }
    }

    /// Whether the server has not closed the image yet.
    fn goes_on(&self) -> bool {
        if let Some(process) = &self.process {
            let mut fds = [PollFd::new(process, PollFlags::IN)];
            return poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ended| ended == 0);
        }
        holders(&self.image).is_some_and(|holders| {
            let is_other = |pid| !self.holders.contains(pid);
            let later = !holders.is_empty() && !self.holders.is_empty();
            // All others are servers of later mounts.
            !(later && holders.iter().all(is_other))
        })
    }

    /// Waits until the server has closed the image, if it is going to.
    fn wait(&self, place: &Path) {
        let begun = now();
        while self.goes_on() {
            let connected = self.control.as_ref().is_some_and(Control::is_connected);
            if connected && begun.elapsed() > IN_USE_AFTER {
                return;
            }
            if begun.elapsed() > PATIENCE {
                complain(&format!(
                    "{}: unmounted, but {} is still in use by its server",
                    show::path(place),
                    show::path(&self.image)
                ));
                return;
            }
            sleep(PERIOD);
        }
    }
}

/// The process that serves a mount. The socket may be that of a server that was killed: then it
/// refuses the connection.
fn server_of(mounted: &Mounted) -> Option<OwnedFd> {
    let client = socket::connect(mounted, socket::STATUS).ok()?;
    pidfd_open(socket_peercred(&client).ok()?.pid, PidfdFlags::empty()).ok()
}

/// The visible processes that hold the lock of `image`; none if it can be opened, or cannot for
/// another reason than a lock.
fn holders(image: &Path) -> Option<Vec<u32>> {
    let place = ImageSpec::parse(image.as_os_str()).ok()?.resolve().ok()?;
    match place.open(FileOptions::new().read_only(true)) {
        Err(OpenError::Locked { users, .. }) => {
            let pid = |user: User| match user {
                User::Process { pid, .. } => Some(pid),
                _ => None,
            };
            Some(users.0.into_iter().filter_map(pid).collect())
        }
        _ => None,
    }
}
