//! The first request, in which kernel and server agree on protocol features.

use nextent_num::must_fit;
use zerocopy::IntoBytes;

use super::layout::{InitIn, InitOut};
use crate::errno::{Errno, Result};

/// The version of the protocol.
const MAJOR: u32 = 7;
const MINOR: u32 = 42;
/// The oldest usable minor version, of Linux 5.4: the kernel opens directories by itself.
const OLDEST: u32 = 31;

/// Bytes of the largest read and write.
pub(crate) const PAYLOAD: usize = 1 << 20;

/// The most requests in flight for which no client waits.
const BACKGROUND: u16 = 256;

const ASYNC_READ: u64 = 1;
/// Handles name nodes; the server looks `.` and `..` up by the number of a node.
const HANDLES: u64 = 1 << 4;
const BIG_WRITES: u64 = 1 << 5;
const DONT_MASK: u64 = 1 << 6;
const IOCTL_DIR: u64 = 1 << 11;
const READDIRPLUS: u64 = 1 << 13;
const READDIRPLUS_AUTO: u64 = 1 << 14;
const PARALLEL_DIRECTORIES: u64 = 1 << 18;
const POSIX_ACL: u64 = 1 << 20;
const MAX_PAGES: u64 = 1 << 22;
const CACHE_SYMLINKS: u64 = 1 << 23;
const NO_OPENDIR: u64 = 1 << 24;
/// The server removes set-id bits and capabilities at writes and truncations, so the kernel need
/// not check for them before each write.
const KILL_PRIVILEGES: u64 = 1 << 28;
/// Requests that set an extended attribute say whether to remove the set-group bit.
const LONG_SETXATTR: u64 = 1 << 29;
const EXTENDED: u64 = 1 << 30;
/// Files that bypass the cache can be mapped, also shared.
const UNCACHED_MAPS: u64 = 1 << 36;
/// Bind mounts may map users. The kernel checks permissions, and requests have no caller's user.
const IDMAPPED: u64 = 1 << 40;
const OVER_IO_URING: u64 = 1 << 41;

const WANTED: u64 = ASYNC_READ
    | HANDLES
    | BIG_WRITES
    | DONT_MASK
    | IOCTL_DIR
    | READDIRPLUS
    | READDIRPLUS_AUTO
    | PARALLEL_DIRECTORIES
    | MAX_PAGES
    | CACHE_SYMLINKS
    | NO_OPENDIR
    | KILL_PRIVILEGES
    | LONG_SETXATTR
    | UNCACHED_MAPS
    | EXTENDED;

/// The kernel's offer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer(InitIn);

/// The server's choices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// The kernel checks access control lists.
    pub(crate) acl: bool,
    /// Requests come over io_uring.
    pub(crate) rings: bool,
    /// The volume stores whole seconds only.
    pub(crate) seconds: bool,
    /// The mount may be idmapped.
    pub(crate) idmapped: bool,
    /// The server must see each `readlink`.
    pub(crate) reads_seen: bool,
}

impl Offer {
    /// Decodes the argument structure of the request. Before Linux 5.17 it ends after the first
    /// flags.
    pub(crate) fn read(structure: &[u8]) -> Result<Self> {
        const SHORT: usize = 16;
        if structure.len() < SHORT {
            return Err(Errno(libc::EINVAL));
        }
        let mut init = InitIn::default();
        let whole = init.as_mut_bytes();
        let len = whole.len().min(structure.len());
        whole[..len].copy_from_slice(&structure[..len]);
        Ok(Self(init))
    }

    /// Whether the kernel's version is usable.
    pub(crate) fn is_known(&self) -> bool {
        self.0.major == MAJOR && self.0.minor >= OLDEST
    }

    fn flags(&self) -> u64 {
        let more = if u64::from(self.0.flags) & EXTENDED != 0 { self.0.flags2 } else { 0 };
        u64::from(self.0.flags) | u64::from(more) << 32
    }

    /// Whether requests may come over io_uring.
    pub(crate) fn has_rings(&self) -> bool {
        self.flags() & OVER_IO_URING != 0
    }

    /// Whether the mount may be idmapped.
    pub(crate) fn has_idmapped(&self) -> bool {
        self.flags() & IDMAPPED != 0
    }

    /// Whether requests that set an extended attribute have their long form.
    pub(crate) fn has_long_setxattr(&self) -> bool {
        self.flags() & LONG_SETXATTR != 0
    }

    /// The answer that accepts the offer.
    pub(crate) fn take(&self, agreed: Agreed) -> InitOut {
        let acl = if agreed.acl { POSIX_ACL } else { 0 };
        let rings = if agreed.rings { OVER_IO_URING } else { 0 };
        let idmapped = if agreed.idmapped { IDMAPPED } else { 0 };
        let unwanted = if agreed.reads_seen { CACHE_SYMLINKS } else { 0 };
        let flags = self.flags() & (WANTED | acl | rings | idmapped) & !unwanted;
        InitOut {
            major: MAJOR,
            minor: MINOR,
            max_readahead: self.0.max_readahead,
            flags: must_fit(flags & u64::from(u32::MAX)),
            flags2: must_fit(flags >> 32),
            max_background: BACKGROUND,
            congestion_threshold: BACKGROUND / 4 * 3,
            max_write: must_fit(PAYLOAD),
            max_pages: must_fit(PAYLOAD / 4096),
            time_granularity: if agreed.seconds { 1_000_000_000 } else { 1 },
            ..InitOut::default()
        }
    }
}
