//! The door: one open file system, for all threads at once.

use std::fmt;

use nextent_ondisk::{Geometry, InodeNo, Superblock};
use nextent_sync::{Arc, LockClass, Mutex, thread};

use crate::error::Result;
use crate::inode::{Fs, Shrink};
use crate::recovered::Recovered;

/// The inode of the root directory.
pub const ROOT_INO: InodeNo = InodeNo(2);

/// An open file system. Its operations are in the modules of `ops`, one a file;
/// opening and closing are in `mount`.
///
/// Dropped without [`close`](Self::close), it leaves the image as a crash would: what was synced
/// is recovered by the next open.
pub struct Inodes {
    pub(crate) fs: Arc<Fs>,
    read_only_reason: Option<String>,
    /// Blocks of the journal.
    pub(crate) journal_blocks: u64,
    recovered: Recovered,
    /// Whether it is closed. `[volume.close]`
    closed: Mutex<bool>,
}

static CLOSE: LockClass = LockClass::new("volume.close", 85);

/// What a volume keeps in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUsage {
    /// Inodes.
    pub inodes: usize,
    /// Bytes they take, and their table blocks.
    pub inode_bytes: usize,
    /// Inodes that are pinned and not in memory.
    pub pinned: usize,
    /// Bytes of metadata blocks, those of inode tables among them.
    pub block_bytes: usize,
    /// Groups that the allocator has loaded.
    pub groups: usize,
    /// Bytes they take, with their bitmaps' blocks.
    pub group_bytes: usize,
}

impl CacheUsage {
    /// All bytes; blocks that inodes or groups keep count twice.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.inode_bytes + self.block_bytes + self.group_bytes
    }
}

impl Inodes {
    pub(crate) fn new(
        fs: Fs,
        read_only_reason: Option<String>,
        journal_blocks: u64,
        recovered: Recovered,
    ) -> Self {
        let closed = Mutex::new(&CLOSE, false);
        let fs = Arc::new(fs);
        Self { fs, read_only_reason, journal_blocks, recovered, closed }
    }

    /// Runs `close` the first time; other callers wait for it to end.
    pub(crate) fn close_once(&self, close: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut closed = self.closed.lock();
        if std::mem::replace(&mut *closed, true) { Ok(()) } else { close() }
    }

    /// Whether changes are refused: from the start, by the policy for errors, or because the
    /// journal stopped.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.fs.is_read_only() || self.fs.is_aborted()
    }

    /// Why the volume was opened for reading only, in words.
    #[must_use]
    pub fn read_only_reason(&self) -> Option<&str> {
        self.read_only_reason.as_deref()
    }

    /// What was recovered when the volume was opened.
    #[must_use]
    pub fn recovery(&self) -> Recovered {
        self.recovered
    }

    /// The numbers that do not change.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.fs.geometry
    }

    /// Changes that used more room in the log than their operation had asked for; for tests, which
    /// want none.
    #[must_use]
    pub fn credit_overruns(&self) -> u64 {
        self.fs.store.credit_overruns()
    }

    /// Drops what the volume keeps in memory and nobody needs; what is open, was changed and is not
    /// durable, or is in use just now, stays. Waits for no I/O.
    pub fn shrink_caches(&self, how: Shrink) {
        self.fs.shrink(how);
    }

    /// What the volume keeps in memory.
    #[must_use]
    pub fn cache_usage(&self) -> CacheUsage {
        let inodes = self.fs.cache.usage();
        let (group_bytes, groups) = self.fs.blocks.loaded_groups();
        let block_bytes = self.fs.geometry.block_len() + nextent_store::BLOCK_OVERHEAD;
        CacheUsage {
            inodes: inodes.inodes,
            inode_bytes: inodes.bytes,
            pinned: inodes.pinned,
            block_bytes: self.fs.store.cached_blocks() * block_bytes,
            groups,
            group_bytes,
        }
    }

    /// The superblock as of now, with present totals.
    #[must_use]
    pub fn superblock(&self) -> Superblock {
        let mut sb = self.fs.sup.snapshot();
        sb.set_free_blocks_count(self.fs.blocks.free_blocks());
        let inodes = self.fs.inodes.free_inodes();
        sb.free_inodes_count.set(u32::try_from(inodes).unwrap_or(u32::MAX));
        sb
    }
}

impl fmt::Debug for Inodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uuid = uuid::Uuid::from_bytes(self.fs.geometry.uuid);
        f.debug_struct("Inodes")
            .field("uuid", &uuid)
            .field("read_only", &self.is_read_only())
            .finish_non_exhaustive()
    }
}

impl Drop for Inodes {
    fn drop(&mut self) {
        if thread::panicking() {
            return; // locks may be in any state
        }
        // The thread that settles has the layers below too, until it ends. It may wait for a thaw.
        self.fs.store.end_freezes();
        self.fs.unsettled.stop();
    }
}
