//! The kernel's control files of a connection: whether it exists, and the file that aborts it.
//!
//! Their directory is opened while the connection exists. The kernel empties it when the connection
//! ends, so its files are never those of a later connection with the same number.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

/// The directory of the control file system, where it is mounted.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// The directory with the control files of one connection.
#[derive(Debug)]
pub struct Control(OwnedFd);

impl Control {
    /// Opens the directory of the connection whose mounts have the device number `major:minor`.
    /// None if this process may not.
    #[must_use]
    pub fn open((major, minor): (u64, u64)) -> Option<Self> {
        let number = (major << 20 | minor).to_string();
        let within = |dir: OwnedFd| open_directory(&dir, &number).map(Self);
        let mounted = open_directory(CWD, CONNECTIONS).and_then(within);
        mounted.or_else(|| within(private_mount()?))
    }

    /// Whether the connection still exists: a mount in any namespace, or an open file in it.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.file("waiting", OFlags::RDONLY).is_some()
    }

    /// Makes the kernel fail all requests; whether this process may.
    pub(crate) fn abort(&self) -> bool {
        let file = self.file("abort", OFlags::WRONLY);
        file.is_some_and(|mut file| file.write_all(b"1").is_ok())
    }

    fn file(&self, name: &str, how: OFlags) -> Option<File> {
        let opened = rustix::fs::openat(&self.0, name, how | OFlags::CLOEXEC, Mode::empty());
        opened.ok().map(File::from)
    }
}

fn open_directory(parent: impl AsFd, path: &str) -> Option<OwnedFd> {
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(parent, path, how, Mode::empty()).ok()
}

/// Mounts the control file system for this process only, as root may.
fn private_mount() -> Option<OwnedFd> {
    let context = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    rustix::mount::fsconfig_create(&context).ok()?;
    let (how, attributes) = (FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty());
    rustix::mount::fsmount(&context, how, attributes).ok()
}
