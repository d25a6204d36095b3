//! The operations of a mounted file system on a volume.
//!
//! Every node that the kernel was told of is pinned once for each time, until it forgets it: its
//! number cannot become another file's before. Opens are counted by the engine too, so a handle
//! is nothing but a zero. All calls take `&self` from any number of threads; there is no lock
//! here, but for nodes that lost data (`late`).
//!
//! Names are changed with privilege, since the kernel has checked permissions (with groups and
//! access control lists) before it asks; blocks are taken with the caller's own.

mod data;
mod ioctl;
mod late;
mod listing;
mod names;
mod nodes;
mod xattrs;

pub(crate) use data::Writing;
pub(crate) use listing::Listing;
pub(crate) use names::encode_device;
pub(crate) use nodes::Change;

use nextent::{Attr, Cred, DiskTime, InodeNo, Volume};
use nextent_num::must_fit;
use nextent_sync::{Arc, OnceLock};

use crate::admission::Admission;
use crate::errno::{Errno, Result, of_node, of_sync};

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Caller {
    /// Whoever the kernel let through, with what new files do not get.
    fn named(self, umask: u32) -> Cred {
        let umask = must_fit(umask & 0o777);
        Cred { privileged: true, ..Cred::user(self.uid, self.gid, Vec::new(), umask) }
    }
}

/// How a volume is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Mounted for reading only.
    pub read_only: bool,
    /// Times of reading are kept as they are.
    pub no_atime: bool,
    /// Who may enter, and with which rights.
    pub admission: Admission,
    /// `statfs` counts the file system's own blocks.
    pub minix_df: bool,
    /// The kernel keeps no contents of files, except of those that are mapped: each read and write
    /// is a request.
    pub uncached: bool,
}

/// A volume and what the kernel knows of it.
pub struct Server {
    pub(crate) volume: Arc<Volume>,
    how: Served,
    /// How the close went. The kernel asks for it where it waits for that in `umount(2)`.
    ended: OnceLock<std::result::Result<(), String>>,
    late: late::Late,
}

impl Server {
    /// Serves `volume`.
    #[must_use]
    pub fn new(volume: Arc<Volume>, how: Served) -> Self {
        Self { volume, how, ended: OnceLock::new(), late: late::Late::new() }
    }

    /// Who may send requests.
    pub(crate) fn admission(&self) -> Admission {
        self.how.admission
    }

    /// The caller without anything granted, unless everyone has everything.
    fn plain(&self, who: Caller) -> Cred {
        self.how.admission.rights(who.uid, who.gid)
    }

    /// Makes everything durable that was changed before.
    pub(crate) fn sync(&self) -> Result<()> {
        self.volume.sync().map_err(of_sync)
    }

    /// Closes the volume after the mount has ended, or says again how that went.
    ///
    /// # Errors
    /// The first error, in words.
    pub fn end(&self) -> std::result::Result<(), String> {
        let ended = self.ended.get_or_init(|| {
            let abandoned = self.volume.abandon();
            let closed = self.volume.close();
            abandoned.and(closed).map_err(|error| error.to_string())
        });
        ended.clone()
    }

    /// Whether reads and writes of a file opened with `flags` go past the kernel's cache.
    pub(crate) fn is_uncached(&self, flags: i32) -> bool {
        self.how.uncached || flags & libc::O_DIRECT != 0
    }

    /// Whether the kernel gathers what is written before it sends it.
    pub(crate) fn writes_back(&self) -> bool {
        !self.how.uncached
    }

    /// Counts a node for the kernel, which is about to be told of it. `known` is what was found
    /// under its name; false when the name means another file by now.
    fn enter(&self, known: &Attr) -> Result<Option<Attr>> {
        if known.ino == nextent::ROOT_INO {
            // The root is never forgotten.
            return Ok(Some(known.clone()));
        }
        match self.volume.pin(known.ino) {
            Ok(attr) if attr.generation == known.generation => Ok(Some(attr)),
            Ok(_) => {
                self.volume.unpin(known.ino, 1)?;
                Ok(None)
            }
            Err(nextent::Error::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// [`enter`](Self::enter) of what the caller has just made.
    fn enter_new(&self, made: &Attr) -> Result<Attr> {
        self.enter(made)?.ok_or(Errno(libc::ESTALE))
    }

    /// The kernel forgets `times` of what it was told of a node.
    pub fn forget(&self, node: u64, times: u64) {
        if let Ok(ino) = crate::node::inode(node)
            && node != crate::node::KERNEL_ROOT
        {
            self.drop_late(node);
            // What could not be freed is an orphan, which the next open of the volume frees.
            let _ = self.volume.unpin(ino, times);
        }
    }

    /// The time of reading, as `relatime` has it: only if it is older than the last change, or a
    /// day old.
    fn touch(&self, ino: InodeNo) -> Result<()> {
        if self.how.no_atime || self.how.read_only || self.volume.is_read_only() {
            return Ok(());
        }
        const DAY: i64 = 24 * 60 * 60;
        let attr = self.volume.getattr(ino).map_err(of_node)?;
        let newest = attr.mtime.max(attr.ctime);
        if attr.atime <= newest || now().seconds - attr.atime.seconds >= DAY {
            self.volume.touch_atime(ino).map_err(of_node)?;
        }
        Ok(())
    }
}

fn now() -> DiskTime {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    DiskTime::new(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
}
