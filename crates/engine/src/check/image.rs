//! The volume under check: its device, superblock and geometry, and how to read from it.

use nextent_device::BlockDevice;
use nextent_num::{must_fit, to_usize};
use nextent_ondisk::{BlockNo, Geometry, GroupDesc, GroupNo, Inode, InodeNo, Superblock};
use nextent_sync::Arc;

use super::report::{Findings, Problem};

/// The volume under check; nothing here ever writes.
pub(super) struct Image {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) sb: Superblock,
    pub(super) geo: Geometry,
    pub(super) found: Findings,
    /// The log was not empty: totals in the superblock may be old, and orphans are expected.
    pub(super) unclean: bool,
    pub(super) workers: usize,
    /// The caller has claimed the volume for a check.
    pub(super) claimed: bool,
}

/// The most bytes read at once.
pub(super) const READ: usize = 1 << 20;

impl Image {
    pub(super) fn push(&self, problem: Problem) {
        self.found.push(problem);
    }

    /// Reads `buf.len()` bytes from the start of `block`; an I/O error is a problem of `pass`.
    pub(super) fn read(&self, pass: u8, block: BlockNo, buf: &mut [u8]) -> bool {
        let at = block.0 << self.geo.block_bits;
        match self.device.read_at(at, buf) {
            Ok(()) => true,
            Err(error) => {
                let text = format!("cannot be read: {error}");
                self.push(Problem::error(pass, "read-error", text).at_block(block));
                false
            }
        }
    }

    /// One block's bytes.
    pub(super) fn block(&self, pass: u8, block: BlockNo) -> Option<Vec<u8>> {
        let mut buf = vec![0; self.geo.block_len()];
        self.read(pass, block, &mut buf).then_some(buf)
    }

    /// Whether a range of blocks holds only zeros, as far as the device knows without reading.
    pub(super) fn is_hole(&self, start: BlockNo, len: u64) -> bool {
        let at = start.0 << self.geo.block_bits;
        let end = at + (len << self.geo.block_bits);
        if end > self.device.size() {
            // Beyond the device, which is no hole.
            return false;
        }
        match self.device.next_data(at) {
            Ok(Some(data)) => data.start >= end,
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// Calls `each` with every group's descriptor and its bytes, in parallel.
    pub(super) fn each_desc(&self, pass: u8, each: impl Fn(GroupNo, GroupDesc, &[u8]) + Sync) {
        let step = self.geo.descs_per_block.min(8);
        let starts = (0..self.geo.group_count).step_by(to_usize(step));
        nextent_sync::parallel_for(self.workers, starts, |first| {
            // Powers of two both, so the groups of a step share a block.
            let (block, at) = self.geo.desc_location(GroupNo(first));
            let Some(bytes) = self.block(pass, block) else { return };
            let end = first.saturating_add(step).min(self.geo.group_count);
            let size = usize::from(self.geo.desc_size);
            for (group, raw) in (first..end).zip(bytes[at..].chunks_exact(size)) {
                if let Ok(desc) = GroupDesc::read(raw) {
                    each(GroupNo(group), desc, raw);
                }
            }
        });
    }

    /// Calls `each` with the index and bytes of every inode of a group that was ever in use, in
    /// order. Parts of the table that cannot be read are problems of `pass`, and left out. Returns
    /// how many inodes these are.
    pub(super) fn each_inode(
        &self,
        pass: u8,
        desc: &GroupDesc,
        mut each: impl FnMut(u32, &[u8]),
    ) -> u64 {
        let geo = &self.geo;
        let touched = desc.inodes_touched(geo);
        let blocks = touched.div_ceil(geo.inodes_per_block);
        let step: u32 = must_fit((READ / geo.block_len()).max(1));
        let mut unread = 0;
        for first in (0..blocks).step_by(to_usize(step)) {
            let len = step.min(blocks - first);
            let start = BlockNo(desc.inode_table.0 + u64::from(first));
            if self.is_hole(start, u64::from(len)) {
                continue;
            }
            let mut bytes = vec![0; to_usize(len) * geo.block_len()];
            if !self.read(pass, start, &mut bytes) {
                unread += u64::from(len * geo.inodes_per_block);
                continue;
            }
            let from = first * geo.inodes_per_block;
            let raws = bytes.chunks_exact(usize::from(geo.inode_size));
            (from..touched).zip(raws).for_each(|(index, raw)| each(index, raw));
        }
        unread
    }

    /// The descriptor of one group.
    pub(super) fn desc(&self, pass: u8, group: GroupNo) -> Option<GroupDesc> {
        let (block, at) = self.geo.desc_location(group);
        let bytes = self.block(pass, block)?;
        GroupDesc::read(&bytes[at..at + usize::from(self.geo.desc_size)]).ok()
    }

    /// One inode and its bytes; `None` if it cannot be read or decoded.
    pub(super) fn inode(&self, pass: u8, ino: InodeNo) -> Option<(Inode, Vec<u8>)> {
        let place = self.geo.inode_location(ino).ok()?;
        let desc = self.desc(pass, place.group)?;
        desc.check(&self.geo, place.group).ok()?;
        let block = BlockNo(desc.inode_table.0 + u64::from(place.table_block));
        let bytes = self.block(pass, block)?;
        let bytes = &bytes[place.offset..place.offset + usize::from(self.geo.inode_size)];
        Some((Inode::read(&self.geo, bytes).ok()?, bytes.to_vec()))
    }
}
