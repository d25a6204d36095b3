//! What carries requests from a kernel to a [`Server`], and how a mount is to be made.

use std::io;
use std::path::{Path, PathBuf};

use nextent_sync::Arc;

use crate::Server;
use crate::admission::Admission;

/// Carries a kernel's requests to a server, from the mount to the unmount.
pub trait Transport: Sized {
    /// Says why there can be no mount at `point`, as far as that is known before: nothing is
    /// opened or changed for it.
    ///
    /// # Errors
    /// [`MountError::Point`] and [`MountError::NoFuse`].
    fn check(point: &Path) -> Result<(), MountError>;

    /// Mounts: from here on requests are queued, and answered once [`serve`](Self::serve) runs.
    ///
    /// # Errors
    /// Why there is no mount.
    fn mount(server: Arc<Server>, point: &Path, setup: &Setup) -> Result<Self, MountError>;

    /// What ends the mount, from any thread.
    fn unmounter(&mut self) -> Unmount;

    /// Answers requests on as many threads as the setup said until the mount ends, by whomever.
    ///
    /// # Errors
    /// Why it ended early.
    fn serve(self) -> io::Result<()>;
}

/// Ends a mount; fails while files are in use. May be called again.
pub type Unmount = Box<dyn FnMut() -> io::Result<()> + Send>;

/// What the kernel does for any file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum MountFlag {
    Suid,
    NoSuid,
    Dev,
    NoDev,
    Exec,
    NoExec,
    NoAtime,
    Sync,
    DirSync,
}

/// A block device that is mounted as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockSource {
    /// The device.
    pub path: PathBuf,
    /// The block size of its cache.
    pub block_size: u32,
}

/// How a mount is to be made.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What is shown as its source.
    pub source: String,
    /// Threads that answer requests; as many as the transport has use for if nothing is said.
    pub threads: Option<usize>,
    /// Threads may count as idle for the scheduler while nobody else wants their core, where they
    /// can come back; of those with one queue one may answer alone then.
    pub idle: bool,
    /// Where the kernel's leave for this transport is off and this process may turn it on, it is
    /// turned on until kernel and server have agreed.
    pub insist: bool,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Access control lists decide.
    pub acl: bool,
    /// Who may enter, and with which rights.
    pub admission: Admission,
    /// The block device that the volume is on, if the kernel shall know it and take it for itself
    /// (root only).
    pub block_device: Option<BlockSource>,
    /// What the kernel does.
    pub flags: Vec<MountFlag>,
}

impl Setup {
    /// Whether only a transport of our own will do: the library knows no block devices, and does
    /// not ask the server before the kernel answers from its caches.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.block_device.is_some() || self.admission.asks()
    }
}

/// Why there is no mount.
#[derive(Debug)]
#[non_exhaustive]
pub enum MountError {
    /// The mount point does not exist, is no directory or cannot be entered.
    Point(PathBuf, io::Error),
    /// The kernel has no FUSE, or this user may not use it.
    NoFuse(io::Error),
    /// The kernel does not send requests over io_uring.
    NoRings(io::Error),
    /// The kernel or its helper refused.
    Refused(io::Error),
}

impl std::fmt::Display for MountError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Point(path, error) => write!(f, "mount point {}: {error}", path.display()),
            Self::NoFuse(error) => write!(f, "{error}"),
            Self::NoRings(error) => write!(f, "FUSE over io_uring: {error}"),
            Self::Refused(error) => write!(f, "mounting: {error}"),
        }
    }
}

impl std::error::Error for MountError {}
