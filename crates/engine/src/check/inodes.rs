//! The results of pass 1 for every inode in use, by group, for the later passes.
//!
//! Groups without inodes in use have no entry. Marks do not change after pass 1; the counters
//! and the links of directories grow during pass 2 from all threads.

use nextent_num::to_usize;
use nextent_sync::HashMap;

use nextent_ondisk::{Geometry, GroupNo, InodeNo};
use nextent_sync::atomic::{AtomicU32, Ordering};

/// The use of an inode: the code of its type in a directory entry, or one of these.
pub(super) mod kind {
    /// Not in use.
    pub(in crate::check) const FREE: u8 = 0;
    /// A directory, as in entries.
    pub(in crate::check) const DIRECTORY: u8 = 2;
    /// In use, with a mode of no file type.
    pub(in crate::check) const BAD: u8 = 0xff;
}

/// Bits of a mark.
pub(super) mod is {
    /// Reserved by the format: always in use, and without a name.
    pub(in crate::check) const RESERVED: u8 = 1;
    /// Known from the superblock, not from a directory.
    pub(in crate::check) const HIDDEN: u8 = 2;
    /// On the orphan list or in the orphan file.
    pub(in crate::check) const ORPHAN: u8 = 4;
    /// Holds the value of an attribute.
    pub(in crate::check) const EA_INODE: u8 = 8;
    /// Later passes skip its contents: blocks are damaged or claimed twice.
    pub(in crate::check) const DAMAGED: u8 = 16;
    /// Its blocks are not all in one run.
    pub(in crate::check) const FRAGMENTED: u8 = 32;
    /// Its contents, and the names in it, are encrypted.
    pub(in crate::check) const ENCRYPTED: u8 = 64;
}

/// One inode.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mark {
    pub(super) kind: u8,
    pub(super) flags: u8,
    /// The link count on disk.
    pub(super) links: u16,
}

impl Mark {
    pub(super) fn in_use(self) -> bool {
        self.kind != kind::FREE
    }
}

/// A directory's place in the tree.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// The directory that has an entry for it; 0 for none yet.
    pub(super) parent: AtomicU32,
    /// The inode of its `..`; 0 if it has none.
    pub(super) dotdot: AtomicU32,
}

/// The inodes of a group.
pub(super) struct Group {
    pub(super) marks: Vec<Mark>,
    /// Names found for each.
    found: Vec<AtomicU32>,
    /// The directories among them, by index, sorted.
    dirs: Vec<(u32, Place)>,
}

impl Group {
    pub(super) fn new(marks: Vec<Mark>) -> Self {
        let found = marks.iter().map(|_| AtomicU32::new(0)).collect();
        let dirs = marks.iter().zip(0..).filter(|(mark, _)| mark.kind == kind::DIRECTORY);
        let dirs = dirs.map(|(_, index)| (index, Place::default())).collect();
        Self { marks, found, dirs }
    }

    pub(super) fn mark(&self, index: u32) -> Mark {
        self.marks.get(to_usize(index)).copied().unwrap_or_default()
    }

    pub(super) fn dirs(&self) -> impl Iterator<Item = (u32, &Place)> {
        self.dirs.iter().map(|(index, place)| (*index, place))
    }

    pub(super) fn links_found(&self, index: u32) -> u32 {
        self.found.get(to_usize(index)).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

/// All inodes in use.
pub(super) struct Inodes {
    groups: HashMap<u32, Group>,
    geo: Geometry,
}

impl Inodes {
    pub(super) fn new(geo: &Geometry, groups: HashMap<u32, Group>) -> Self {
        Self { groups, geo: geo.clone() }
    }

    pub(super) fn group(&self, group: GroupNo) -> Option<&Group> {
        self.groups.get(&group.0)
    }

    /// The groups with inodes in use, in no order.
    pub(super) fn groups(&self) -> impl Iterator<Item = (GroupNo, &Group)> + Clone {
        self.groups.iter().map(|(number, group)| (GroupNo(*number), group))
    }

    fn of(&self, ino: InodeNo) -> Option<(&Group, u32)> {
        let (group, index) = self.geo.inode_group(ino).ok()?;
        Some((self.groups.get(&group.0)?, index))
    }

    pub(super) fn mark(&self, ino: InodeNo) -> Mark {
        self.of(ino).map_or(Mark::default(), |(group, index)| group.mark(index))
    }

    /// Counts one more name of `ino`.
    pub(super) fn count(&self, ino: InodeNo) {
        if let Some((group, index)) = self.of(ino)
            && let Some(count) = group.found.get(to_usize(index))
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The place in the tree of a directory.
    pub(super) fn place(&self, ino: InodeNo) -> Option<&Place> {
        let (group, index) = self.of(ino)?;
        let at = group.dirs.binary_search_by_key(&index, |(index, _)| *index).ok()?;
        Some(&group.dirs[at].1)
    }
}
