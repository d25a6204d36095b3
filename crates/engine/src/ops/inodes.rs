//! An open volume, used by inode numbers and from many threads at once.

use std::fmt;

use nextent_ondisk::{Geometry, InodeNo, Superblock};
use nextent_store::JournalStatistics;
use nextent_sync::{Arc, LockClass, Mutex, thread};

use crate::error::{Error, Result};
use crate::inode::{Fs, Shrink};
use crate::mmp::{Heartbeat, MultiMount};
use crate::recovered::Recovered;

/// The inode of the root directory.
pub const ROOT_INO: InodeNo = InodeNo(2);

/// An open volume, used by inode numbers.
///
/// Dropping it without [`close`](Self::close) leaves the image as a crash would: the next open
/// recovers what was synced.
pub struct Inodes {
    pub(crate) fs: Arc<Fs>,
    read_only: ReadOnlyReasons,
    /// Blocks of the journal; 0 without one.
    pub(crate) journal_blocks: u64,
    recovered: Recovered,
    /// Whether the volume is closed. `[volume.close]`
    closed: Mutex<bool>,
    /// `[volume.label]`
    pub(super) label: Mutex<()>,
}

/// Why a volume on a device that refuses writes is read-only.
pub(crate) const DEVICE_READ_ONLY: &str = "the device is read-only";

/// Why a volume was opened read-only.
#[derive(Debug, Default)]
pub(crate) struct ReadOnlyReasons {
    /// Why it was opened read-only, if it was.
    pub(crate) opened: Option<String>,
    /// Why it cannot be made writable while it is open, if it cannot.
    pub(crate) stays: Option<String>,
}

static CLOSE: LockClass = LockClass::new("volume.close", 85);

/// The size of a volume's caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUsage {
    /// Inodes in memory.
    pub inodes: usize,
    /// Bytes of these inodes and of the table blocks that they keep.
    pub inode_bytes: usize,
    /// Pinned inodes that are not in memory.
    pub pinned: usize,
    /// Bytes of metadata blocks, inode tables included.
    pub block_bytes: usize,
    /// Groups that the allocator has loaded.
    pub groups: usize,
    /// Bytes of these groups, with the blocks of their bitmaps.
    pub group_bytes: usize,
}

impl CacheUsage {
    /// The sum of the bytes. A block that an inode or a group keeps counts twice.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.inode_bytes + self.block_bytes + self.group_bytes
    }
}

impl Inodes {
    pub(crate) fn new(
        fs: Fs,
        read_only: ReadOnlyReasons,
        journal_blocks: u64,
        recovered: Recovered,
    ) -> Self {
        let closed = Mutex::new(&CLOSE, false);
        let fs = Arc::new(fs);
        let label = super::superblock::lock();
        Self { fs, read_only, journal_blocks, recovered, closed, label }
    }

    /// Runs `close` in the first call; later callers wait until it ends.
    pub(crate) fn close_once(&self, close: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut closed = self.closed.lock();
        if std::mem::replace(&mut *closed, true) { Ok(()) } else { close() }
    }

    /// Runs `change` unless the volume is closed. Other callers, and a close, wait until it ends.
    pub(crate) fn while_open(&self, change: impl FnOnce() -> Result<()>) -> Result<()> {
        let closed = self.closed.lock();
        if *closed { Err(Error::ReadOnly) } else { change() }
    }

    /// Whether the volume was opened read-only for as long as it is open.
    pub(crate) fn is_read_only_for_good(&self) -> bool {
        self.read_only.stays.is_some()
    }

    /// Why the volume cannot be made writable, if it cannot.
    pub(crate) fn stays_read_only(&self) -> Option<String> {
        match &self.read_only.stays {
            Some(why) => Some(why.clone()),
            None if self.fs.is_damaged() || self.fs.is_aborted() => {
                Some("damage was found; unmount it, and check it with e2fsck".to_owned())
            }
            None if self.fs.store.device().is_read_only() => Some(DEVICE_READ_ONLY.to_owned()),
            None => None,
        }
    }

    /// Whether changes fail: the volume was opened or made read-only, the error policy made it so,
    /// or the journal stopped.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.fs.is_read_only() || self.fs.is_aborted()
    }

    /// Why the volume was opened read-only, as a sentence, if it was and has not been made writable
    /// since.
    #[must_use]
    pub fn read_only_reason(&self) -> Option<&str> {
        self.read_only.opened.as_deref().filter(|_| self.fs.is_read_only())
    }

    /// What this node last wrote to the block of multiple mount protection; none for a volume
    /// without the feature, or one that is only read.
    #[must_use]
    pub fn multi_mount(&self) -> Option<MultiMount> {
        self.fs.heartbeat.lock().as_ref().map(Heartbeat::state)
    }

    /// What opening the volume recovered.
    #[must_use]
    pub fn recovery(&self) -> Recovered {
        self.recovered
    }

    /// The sizes and counts that stay the same while the volume is open.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.fs.geometry
    }

    /// Operations that used more journal credits than they had asked for. Tests expect none.
    #[doc(hidden)]
    #[must_use]
    pub fn credit_overruns(&self) -> u64 {
        self.fs.store.credit_overruns()
    }

    /// Drops unused inodes and blocks from memory. Open, changed or busy ones stay. Waits for no
    /// I/O.
    pub fn shrink_caches(&self, how: Shrink) {
        self.fs.shrink(how);
    }

    /// The present size of the caches.
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

    /// What the journal has done since the volume was opened.
    #[must_use]
    pub fn journal_statistics(&self) -> JournalStatistics {
        self.fs.store.journal_statistics()
    }

    /// The superblock with the present counts of free blocks and inodes.
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
            return; // a lock may be held
        }
        // The completion thread keeps the layers below alive until it ends. It may wait for a thaw.
        self.fs.store.end_freezes();
        self.fs.deferred_files.stop();
    }
}
