//! The published snapshot of an inode: attributes for readers that do not take its lock.
//!
//! Nearly every operation needs type, mode, owner and flags of directories that all cores traverse,
//! and these attributes change rarely. Every change of the fields publishes them here under the
//! state lock, on a cache line of their own.
//!
//! Loads and stores are relaxed, except for the sequence number of the entries. The bits of one
//! word are consistent with each other. A reader that looked the file up by name, or holds
//! `inode.rw`, sees values at least that recent. Other readers may see slightly older values.

use nextent_num::{low_half, must_fit};
use nextent_ondisk::inode::{self as format, Inode as Fields};
use nextent_ondisk::{BlockNo, Geometry, InodeNo};
use nextent_sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::FileType;

/// Bits of [`Snapshot`] above the flags and the mode.
const HAS_ACL: u64 = 1 << 48;
const FREE: u64 = 1 << 49;
const UNLINKED: u64 = 1 << 50;

/// The published snapshot of one inode.
#[derive(Default)]
pub(super) struct PublishedAttrs {
    mode_and_flags: AtomicU64,
    /// Seed of the checksums of this inode's blocks.
    seed: AtomicU32,
    owner: AtomicU64,
    /// Sequence number of a directory's entries. Raised under `inode.rw` held exclusively, before
    /// entries change. Release when stored; Acquire when loaded by readers of the name cache.
    entries_seq: AtomicU64,
}

/// The attributes to publish, compared to find out whether they changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct AttrValues {
    generation: u32,
    mode_and_flags: u64,
    owner: u64,
}

impl AttrValues {
    /// The attributes of `disk`, which was read from `raw`; `free` if the inode number is not in
    /// use.
    #[inline]
    pub(super) fn of(disk: &Fields, raw: &[u8], free: bool) -> Self {
        let area = format::BASE_SIZE + usize::from(disk.extra_isize);
        // Attributes inside the inode begin with a magic number other than zero.
        let inside = raw.get(area..area + 4).is_some_and(|magic| magic != [0; 4]);
        let has_acl = inside || disk.file_acl != BlockNo(0);
        let bit = |set: bool, bit: u64| if set { bit } else { 0 };
        let mode_and_flags = u64::from(disk.flags)
            | (u64::from(disk.mode) << 32)
            | bit(has_acl, HAS_ACL)
            | bit(free, FREE)
            | bit(disk.links == 0, UNLINKED);
        let owner = u64::from(disk.uid) << 32 | u64::from(disk.gid);
        Self { generation: disk.generation, mode_and_flags, owner }
    }
}

impl PublishedAttrs {
    /// Publishes `attrs` of inode `ino`. Called under its state lock.
    pub(super) fn publish(
        &self,
        attrs: AttrValues,
        disk: &Fields,
        geometry: &Geometry,
        ino: InodeNo,
    ) {
        self.seed.store(disk.csum_seed(geometry, ino), Ordering::Relaxed);
        self.mode_and_flags.store(attrs.mode_and_flags, Ordering::Relaxed);
        self.owner.store(attrs.owner, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot(self.mode_and_flags.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn csum_seed(&self) -> u32 {
        self.seed.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn owner(&self) -> (u32, u32) {
        let owner = self.owner.load(Ordering::Relaxed);
        (low_half(owner >> 32), low_half(owner))
    }

    #[inline]
    pub(super) fn entries_seq(&self) -> u64 {
        self.entries_seq.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn bump_entries_seq(&self) {
        let seq = self.entries_seq.load(Ordering::Relaxed);
        self.entries_seq.store(seq + 1, Ordering::Release);
    }
}

/// Mode, flags and state of an inode at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot(u64);

impl Snapshot {
    /// The mode, including the file type.
    #[inline]
    pub(crate) fn mode(self) -> u16 {
        must_fit(self.0 >> 32 & u64::from(u16::MAX))
    }

    /// The file type; a freed inode keeps its last one.
    #[inline]
    pub(crate) fn file_type(self) -> Option<FileType> {
        FileType::of_mode(self.mode())
    }

    /// Whether the file may have an access list.
    #[inline]
    pub(crate) fn may_have_acl(self) -> bool {
        self.0 & HAS_ACL != 0
    }

    /// Whether the inode number is not in use.
    #[inline]
    pub(crate) fn is_free(self) -> bool {
        self.0 & FREE != 0
    }

    /// Whether the link count is zero.
    #[inline]
    pub(crate) fn is_unlinked(self) -> bool {
        self.0 & UNLINKED != 0
    }

    /// Whether any of `flags` is set.
    #[inline]
    pub(crate) fn has_any(self, flags: u32) -> bool {
        low_half(self.0) & flags != 0
    }
}
