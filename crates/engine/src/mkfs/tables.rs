//! The inode tables of a new volume, each block written once.
//!
//! Inodes come in any order. Those that share a stretch of a table are gathered and written when
//! the last of them is known, or at the end; so memory follows what is unfinished.

use std::collections::BTreeMap;

use nextent_ondisk::{BlockNo, Geometry, GroupNo, Inode, InodeNo, inode};

use super::error::MkfsError;
use super::place::Place;
use super::write::Out;

/// Bytes of a stretch, unless a block is larger.
const STRETCH: u32 = 64 * 1024;

/// One stretch of a group's table.
struct Stretch {
    bytes: Vec<u8>,
    /// Inodes in it that are not known.
    missing: u32,
}

/// The stretches that wait for inodes.
pub(super) struct Tables {
    /// Table blocks of a stretch.
    blocks: u32,
    /// By group and place in its table.
    waiting: BTreeMap<(GroupNo, u32), Stretch>,
}

impl Tables {
    /// No inode is known.
    pub(super) fn new(geometry: &Geometry) -> Self {
        let blocks = (STRETCH / geometry.block_size).max(1);
        Self { blocks, waiting: BTreeMap::new() }
    }

    /// Says what an inode is; `tail` goes to its end.
    ///
    /// # Errors
    ///
    /// An inode that the volume does not have, or an error of the device.
    pub(super) fn put(
        &mut self,
        (geometry, places, out): (&Geometry, &[Place], &Out<'_>),
        ino: InodeNo,
        inode: Option<&Inode>,
        tail: &[u8],
    ) -> Result<(), MkfsError> {
        let (group, index) = geometry.inode_group(ino)?;
        let size = usize::from(geometry.inode_size);
        let each = self.blocks * (geometry.block_size / u32::from(geometry.inode_size));
        let key = (group, index / each);
        let stretch = self.waiting.entry(key).or_insert_with(|| Stretch {
            bytes: vec![0; self.blocks as usize * geometry.block_len()],
            missing: each.min(geometry.inodes_per_group - key.1 * each),
        });
        let at = (index % each) as usize * size;
        let slot = &mut stretch.bytes[at..at + size];
        if let Some(inode) = inode {
            inode.write(geometry, slot);
        }
        slot[size - tail.len()..].copy_from_slice(tail);
        inode::seal(geometry, ino, slot);
        stretch.missing -= 1;
        if stretch.missing == 0
            && let Some(stretch) = self.waiting.remove(&key)
        {
            let used = (key.1 * each + each).min(geometry.inodes_per_group);
            self.write((geometry, places, out), key, &stretch.bytes, used)?;
        }
        Ok(())
    }

    /// Writes what waits: the blocks with inodes up to `highest`.
    ///
    /// # Errors
    ///
    /// An error of the device.
    pub(super) fn finish(
        &mut self,
        (geometry, places, out): (&Geometry, &[Place], &Out<'_>),
        highest: u32,
    ) -> Result<(), MkfsError> {
        let (last, index) = geometry.inode_group(InodeNo(highest))?;
        for (key, stretch) in std::mem::take(&mut self.waiting) {
            let used = if key.0 == last { index + 1 } else { geometry.inodes_per_group };
            self.write((geometry, places, out), key, &stretch.bytes, used)?;
        }
        Ok(())
    }

    /// Writes the blocks of a stretch that hold any of the first `used` inodes of the group.
    fn write(
        &self,
        (geometry, places, out): (&Geometry, &[Place], &Out<'_>),
        (group, at): (GroupNo, u32),
        bytes: &[u8],
        used: u32,
    ) -> Result<(), MkfsError> {
        let per_block = geometry.block_size / u32::from(geometry.inode_size);
        let first = at * self.blocks;
        let blocks = used.div_ceil(per_block).saturating_sub(first).min(self.blocks);
        let table = places[group.0 as usize].inode_table;
        let len = blocks as usize * geometry.block_len();
        out.put("writing inodes", BlockNo(table.0 + u64::from(first)), &bytes[..len])
    }
}
