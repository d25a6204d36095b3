//! What is told of an inode to those who do not take its lock.
//!
//! Type and mode, owner, flags, whether the number is free: nearly every operation asks for
//! these, of directories that all cores walk through, and they change seldom. They are copied here
//! from the fields by every change, under the state lock, and lie apart from what changes often.
//!
//! All but the edition are relaxed. What is in one word is of one moment. Whoever found a file by
//! its name, or holds `inode.rw`, is told no older things than that; anyone else may be told what
//! was true a moment ago, as if it had asked then.

use nextent_num::{low_half, must_fit};
use nextent_ondisk::inode::{self as format, Inode as Fields};
use nextent_ondisk::{BlockNo, Geometry, InodeNo};
use nextent_sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::FileType;

/// Bits of [`Traits`] above the flags and the mode.
const LISTED: u64 = 1 << 48;
const FREE: u64 = 1 << 49;
const NAMELESS: u64 = 1 << 50;

/// One inode's place for what is told.
#[derive(Default)]
pub(super) struct Told {
    traits: AtomicU64,
    /// The seed of the checksums of this inode's blocks.
    seed: AtomicU32,
    /// User and group.
    owner: AtomicU64,
    /// Raised, with `inode.rw` held exclusively, before entries change. Released then, acquired
    /// by those who go by names they found earlier.
    edition: AtomicU64,
}

/// What is told, as the fields say it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    generation: u32,
    traits: u64,
    owner: u64,
}

impl Facts {
    /// What `disk`, which came from `raw`, says; `free` if the number belongs to nobody.
    #[inline]
    pub(super) fn of(disk: &Fields, raw: &[u8], free: bool) -> Self {
        let area = format::BASE_SIZE + usize::from(disk.extra_isize);
        // Attributes in the inode begin with a number that is not zero.
        let inside = raw.get(area..area + 4).is_some_and(|magic| magic != [0; 4]);
        let listed = inside || disk.file_acl != BlockNo(0);
        let bit = |set: bool, bit: u64| if set { bit } else { 0 };
        let traits = u64::from(disk.flags)
            | (u64::from(disk.mode) << 32)
            | bit(listed, LISTED)
            | bit(free, FREE)
            | bit(disk.links == 0, NAMELESS);
        let owner = u64::from(disk.uid) << 32 | u64::from(disk.gid);
        Self { generation: disk.generation, traits, owner }
    }
}

impl Told {
    /// Tells `facts` of the inode `ino`. Under its state lock.
    pub(super) fn tell(&self, facts: Facts, disk: &Fields, geometry: &Geometry, ino: InodeNo) {
        self.seed.store(disk.csum_seed(geometry, ino), Ordering::Relaxed);
        self.traits.store(facts.traits, Ordering::Relaxed);
        self.owner.store(facts.owner, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn traits(&self) -> Traits {
        Traits(self.traits.load(Ordering::Relaxed))
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
    pub(super) fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn begin_edition(&self) {
        let edition = self.edition.load(Ordering::Relaxed);
        self.edition.store(edition + 1, Ordering::Release);
    }
}

/// What an inode was at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits(u64);

impl Traits {
    /// The mode, the file's type among it.
    #[inline]
    pub(crate) fn mode(self) -> u16 {
        must_fit(self.0 >> 32 & u64::from(u16::MAX))
    }

    /// The kind of file; a freed inode keeps its last one.
    #[inline]
    pub(crate) fn file_type(self) -> Option<FileType> {
        FileType::of_mode(self.mode())
    }

    /// Whether there may be an access list.
    #[inline]
    pub(crate) fn may_have_list(self) -> bool {
        self.0 & LISTED != 0
    }

    /// Whether the number belongs to nobody.
    #[inline]
    pub(crate) fn is_free(self) -> bool {
        self.0 & FREE != 0
    }

    /// Whether it has no name any more.
    #[inline]
    pub(crate) fn is_nameless(self) -> bool {
        self.0 & NAMELESS != 0
    }

    /// Whether any of these flags is set.
    #[inline]
    pub(crate) fn has_any(self, flags: u32) -> bool {
        low_half(self.0) & flags != 0
    }
}
