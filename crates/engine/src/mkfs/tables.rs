//! The inode tables of a new volume, each block written once.
//!
//! Inodes come in any order. The inodes of one stretch of a table are collected until the last of
//! them is known, and then written together. So memory grows only with unfinished stretches.

use std::collections::BTreeMap;

use nextent_num::to_usize;
use nextent_ondisk::{BlockNo, Geometry, GroupNo, Inode, InodeNo, inode};

use super::error::MkfsError;
use super::place::Place;

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

    /// Sets an inode, with `tail` at its end. Returns the stretch if this was its last inode.
    ///
    /// # Errors
    ///
    /// An inode that the volume does not have.
    pub(super) fn put(
        &mut self,
        (geometry, places): (&Geometry, &[Place]),
        ino: InodeNo,
        inode: Option<&Inode>,
        tail: &[u8],
    ) -> Result<Option<(BlockNo, Vec<u8>)>, MkfsError> {
        let (group, index) = geometry.inode_group(ino)?;
        let size = usize::from(geometry.inode_size);
        let each = self.blocks * (geometry.block_size / u32::from(geometry.inode_size));
        let key = (group, index / each);
        let stretch = self.waiting.entry(key).or_insert_with(|| Stretch {
            bytes: vec![0; to_usize(self.blocks) * geometry.block_len()],
            missing: each.min(geometry.inodes_per_group - key.1 * each),
        });
        let at = to_usize(index % each) * size;
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
            return Ok(Some(self.cut((geometry, places), key, stretch.bytes, used)));
        }
        Ok(None)
    }

    /// The unfinished stretches: their blocks with inodes up to `highest`.
    ///
    /// # Errors
    ///
    /// An inode that the volume does not have.
    pub(super) fn finish(
        &mut self,
        (geometry, places): (&Geometry, &[Place]),
        highest: u32,
    ) -> Result<Vec<(BlockNo, Vec<u8>)>, MkfsError> {
        let (last, index) = geometry.inode_group(InodeNo(highest))?;
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let cut = |(key, stretch): ((GroupNo, u32), Stretch)| {
            let used = if key.0 == last { index + 1 } else { geometry.inodes_per_group };
            self.cut((geometry, places), key, stretch.bytes, used)
        };
        Ok(waiting.map(cut).collect())
    }

    /// The blocks of a stretch that hold any of the first `used` inodes of the group.
    fn cut(
        &self,
        (geometry, places): (&Geometry, &[Place]),
        (group, at): (GroupNo, u32),
        mut bytes: Vec<u8>,
        used: u32,
    ) -> (BlockNo, Vec<u8>) {
        let per_block = geometry.block_size / u32::from(geometry.inode_size);
        let first = at * self.blocks;
        let blocks = used.div_ceil(per_block).saturating_sub(first).min(self.blocks);
        bytes.truncate(to_usize(blocks) * geometry.block_len());
        (BlockNo(places[to_usize(group.0)].inode_table.0 + u64::from(first)), bytes)
    }
}
