//! Blocks with a fixed use.

use nextent_ondisk::{BlockNo, GroupDesc, GroupNo, Incompat, bitmap, numbers};

use super::{BlockUse, Scan, count};
use crate::check::walk;

impl Scan<'_> {
    /// Claims superblocks, descriptors, bitmaps, inode tables and bad blocks.
    pub(super) fn fixed(&self) {
        let geo = &self.image.geo;
        self.add(0..geo.first_data_block.0, BlockUse::Superblocks);
        for group in geo.groups() {
            self.head(group);
        }
        let mmp = BlockNo(self.image.sb.mmp_block.get());
        if geo.features.has(Incompat::MMP) && geo.holds_run(mmp, 1) {
            self.claim(mmp, 1, BlockUse::Special);
        }
        self.each_group(|_, desc| {
            if let Some(desc) = desc {
                self.claim(desc.block_bitmap, 1, BlockUse::Bitmaps);
                self.claim(desc.inode_bitmap, 1, BlockUse::Bitmaps);
                self.table(&desc);
            }
        });
        self.bad_blocks();
    }

    /// The superblock at the start of a group, and the descriptors behind it.
    fn head(&self, group: GroupNo) {
        let geo = &self.image.geo;
        let head = geo.head_blocks(group);
        let mut at = head.start;
        if let Some(block) = geo.super_block_of(group) {
            let end = (block.0 + 1).min(head.end);
            self.claim(BlockNo(at), end - at, BlockUse::Superblocks);
            at = end;
        }
        // A group of a meta group has one descriptor block and none reserved.
        let table = u64::from(geo.contiguous_gdt_blocks().max(1));
        let end = at.saturating_add(table).min(head.end);
        self.claim(BlockNo(at), end - at, BlockUse::Descriptors);
        self.claim(BlockNo(end), head.end - end, BlockUse::DescriptorGrowth);
    }

    fn table(&self, desc: &GroupDesc) {
        let geo = &self.image.geo;
        let (start, len) = (desc.inode_table.0, geo.inode_table_blocks);
        let claim = |from: u32, to: u32, of| {
            self.claim(BlockNo(start + u64::from(from)), u64::from(to - from), of);
        };
        let Some(bits) = self.inode_bits(desc) else {
            let used = desc.inodes_touched(geo).div_ceil(geo.inodes_per_block).min(len);
            claim(0, used, BlockUse::InodesUsed);
            return claim(used, len, BlockUse::InodesUnused);
        };
        let inodes = geo.inodes_per_group;
        let clear = bitmap::count_clear(&bits, inodes);
        count(&self.inodes_used, inodes - clear);
        let mut at = 0;
        while at < len {
            let next = bitmap::find_set(&bits, at * geo.inodes_per_block, inodes);
            let used = next.map_or(len, |inode| inode / geo.inodes_per_block);
            claim(at, used, BlockUse::InodesUnused);
            if used == len {
                break;
            }
            claim(used, used + 1, BlockUse::InodesUsed);
            at = used + 1;
        }
    }

    /// Bad blocks may lie in metadata, which has copies elsewhere.
    fn bad_blocks(&self) {
        let ino = numbers::BAD_BLOCKS_INO;
        let Some((inode, _)) = self.image.inode(1, ino) else { return };
        for run in walk::runs(self.image, 1, ino, &inode).runs {
            self.take(run.start, run.len.into(), BlockUse::Special);
        }
    }
}
