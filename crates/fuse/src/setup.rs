//! The options of a mount, and why there is none.

use std::io;
use std::path::PathBuf;

/// Mount options that the kernel implements for every file system.
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
    RelAtime,
    StrictAtime,
    NoDirAtime,
    LazyTime,
    Sync,
    DirSync,
}

/// A block device, mounted so that the kernel knows it as the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockSource {
    /// The device.
    pub path: PathBuf,
    /// The block size of its cache, in bytes.
    pub block_size: u32,
}

/// The options of a mount.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The source that `/proc/mounts` shows.
    pub source: String,
    /// Threads that answer requests; the transport's default if none.
    pub threads: Option<usize>,
    /// If the kernel does not offer this transport and this process may turn the offer on, it does
    /// so until kernel and server have agreed.
    pub insist: bool,
    /// No operation may change the volume.
    pub read_only: bool,
    /// The kernel checks access control lists.
    pub acl: bool,
    /// The block device of the volume, if the kernel is to know it and to open it exclusively (root
    /// only).
    pub block_device: Option<BlockSource>,
    /// Options that the kernel implements.
    pub flags: Vec<MountFlag>,
}

/// Why there is no mount.
#[derive(Debug)]
#[non_exhaustive]
pub enum MountError {
    /// The mount point does not exist, is not a directory or cannot be entered.
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
