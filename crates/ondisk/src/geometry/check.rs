//! From superblock to geometry: refuses every impossible number.

use super::Geometry;
use crate::error::{Corrupt, Structure};
use crate::superblock::{GOOD_OLD_FIRST_INO, GOOD_OLD_INODE_SIZE, REV_DYNAMIC, SUPER_MAGIC};
use crate::{BlockNo, Features, Incompat, RoCompat, Superblock};

/// The smallest and largest block: 1 KiB and 64 KiB.
const MIN_BLOCK_BITS: u32 = 10;
const MAX_BLOCK_BITS: u32 = 16;
/// The largest cluster: 512 MiB, as mke2fs allows.
const MAX_CLUSTER_BITS: u32 = 29;

fn bad<T>(name: &'static str, value: impl Into<u64>) -> Result<T, Corrupt> {
    Err(Corrupt::field(Structure::Superblock, name, value))
}

impl Superblock {
    /// Checks the numbers that never change while a volume is open. `device_bytes` is the size of
    /// the device; `u64::MAX` skips that comparison.
    ///
    /// # Errors
    ///
    /// A wrong magic number, an unknown revision, or a number that contradicts the format, other
    /// numbers, or the device. [`Self::verify_checksum`] checks the checksum.
    pub fn check(&self, device_bytes: u64) -> Result<Geometry, Corrupt> {
        if self.magic.get() != SUPER_MAGIC {
            return Err(Corrupt::magic(Structure::Superblock, self.magic.get()));
        }
        if self.rev_level.get() > REV_DYNAMIC {
            return bad("s_rev_level", self.rev_level.get());
        }
        let features = self.features();
        let block_bits = self.checked_block_bits()?;
        let cluster_bits = self.checked_cluster_bits(features, block_bits)?;
        let mut geometry = Geometry {
            block_size: 1 << block_bits,
            block_bits,
            cluster_blocks: 1 << cluster_bits,
            cluster_bits,
            blocks_count: self.blocks_count(),
            first_data_block: BlockNo(u64::from(self.first_data_block.get())),
            blocks_per_group: self.blocks_per_group.get(),
            clusters_per_group: self.blocks_per_group.get() >> cluster_bits,
            inodes_per_group: self.inodes_per_group.get(),
            inodes_count: self.inodes_count.get(),
            first_inode: self.first_inode(),
            inode_size: self.inode_size_bytes(),
            inodes_per_block: 0,
            inode_table_blocks: 0,
            desc_size: if features.has(Incompat::BIT64) { self.desc_size.get() } else { 32 },
            descs_per_block: 0,
            group_count: 0,
            reserved_gdt_blocks: u32::from(self.reserved_gdt_blocks.get()),
            first_meta_bg: self.first_meta_bg.get(),
            flex_groups: self.flex_groups(features),
            backup_groups: self.backup_bgs.map(|group| group.get()),
            features,
            creator_os: self.creator_os.get(),
            csum_seed: self.csum_seed(),
            uuid: self.uuid,
        };
        self.check_groups(&mut geometry)?;
        self.check_inodes(&mut geometry)?;
        self.check_descriptors(&mut geometry)?;
        self.check_size(&geometry, device_bytes)?;
        Ok(geometry)
    }

    fn checked_block_bits(&self) -> Result<u32, Corrupt> {
        let log = self.log_block_size.get();
        if log > MAX_BLOCK_BITS - MIN_BLOCK_BITS {
            return bad("s_log_block_size", log);
        }
        Ok(MIN_BLOCK_BITS + log)
    }

    /// The binary logarithm of the blocks of a cluster.
    fn checked_cluster_bits(&self, features: Features, block_bits: u32) -> Result<u32, Corrupt> {
        let log = self.log_cluster_size.get();
        let bits = log.saturating_add(MIN_BLOCK_BITS);
        if !features.has(RoCompat::BIGALLOC) {
            // Revision 0 has the fragment size in this field, which always equals the block size.
            return if bits == block_bits { Ok(0) } else { bad("s_log_cluster_size", log) };
        }
        if bits < block_bits || bits > MAX_CLUSTER_BITS {
            return bad("s_log_cluster_size", log);
        }
        Ok(bits - block_bits)
    }

    fn flex_groups(&self, features: Features) -> u32 {
        match self.log_groups_per_flex {
            log @ 1..=31 if features.has(Incompat::FLEX_BG) => 1 << log,
            _ => 1,
        }
    }

    fn check_groups(&self, geometry: &mut Geometry) -> Result<(), Corrupt> {
        let bits = geometry.block_size * 8;
        let per_group = geometry.blocks_per_group;
        if !per_group.is_multiple_of(8 << geometry.cluster_bits)
            || geometry.clusters_per_group == 0
            || geometry.clusters_per_group > bits
        {
            return bad("s_blocks_per_group", per_group);
        }
        if geometry.features.has(RoCompat::BIGALLOC)
            && self.clusters_per_group.get() != geometry.clusters_per_group
        {
            return bad("s_clusters_per_group", self.clusters_per_group.get());
        }
        let first = u64::from(self.log_cluster_size.get() == 0);
        if geometry.first_data_block.0 != first {
            return bad("s_first_data_block", geometry.first_data_block.0);
        }
        let Some(blocks) = geometry.blocks_count.checked_sub(first).filter(|n| *n > 0) else {
            return bad("s_blocks_count", geometry.blocks_count);
        };
        // A byte offset on the volume must fit into an `i64`.
        if geometry.blocks_count > (i64::MAX as u64) >> geometry.block_bits {
            return bad("s_blocks_count", geometry.blocks_count);
        }
        match u32::try_from(blocks.div_ceil(u64::from(per_group))) {
            // The largest counts are refused, so that rounding up to whole descriptor blocks cannot
            // overflow.
            Ok(count) if count <= u32::MAX - (1 << 16) => geometry.group_count = count,
            _ => return bad("s_blocks_count", geometry.blocks_count),
        }
        if self.reserved_blocks_count() > geometry.blocks_count {
            return bad("s_r_blocks_count", self.reserved_blocks_count());
        }
        Ok(())
    }

    fn check_inodes(&self, geometry: &mut Geometry) -> Result<(), Corrupt> {
        let size = geometry.inode_size;
        if !size.is_power_of_two()
            || size < GOOD_OLD_INODE_SIZE
            || u32::from(size) > geometry.block_size
        {
            return bad("s_inode_size", size);
        }
        geometry.inodes_per_block = geometry.block_size / u32::from(size);
        let per_group = geometry.inodes_per_group;
        if per_group == 0
            || !per_group.is_multiple_of(8)
            || !per_group.is_multiple_of(geometry.inodes_per_block)
            || per_group > geometry.block_size * 8
        {
            return bad("s_inodes_per_group", per_group);
        }
        geometry.inode_table_blocks = per_group / geometry.inodes_per_block;
        let count = u64::from(geometry.group_count) * u64::from(per_group);
        if u64::from(geometry.inodes_count) != count {
            return bad("s_inodes_count", geometry.inodes_count);
        }
        let first = geometry.first_inode.0;
        if first < GOOD_OLD_FIRST_INO || first > geometry.inodes_count {
            return bad("s_first_ino", first);
        }
        Ok(())
    }

    fn check_descriptors(&self, geometry: &mut Geometry) -> Result<(), Corrupt> {
        let size = geometry.desc_size;
        let wide = geometry.features.has(Incompat::BIT64);
        if wide && !(size.is_power_of_two() && (64..=1024).contains(&size)) {
            return bad("s_desc_size", size);
        }
        geometry.descs_per_block = geometry.block_size / u32::from(size);
        if geometry.reserved_gdt_blocks > geometry.block_size / 4 {
            return bad("s_reserved_gdt_blocks", geometry.reserved_gdt_blocks);
        }
        let meta = geometry.features.has(Incompat::META_BG);
        if meta && geometry.first_meta_bg > geometry.gdt_blocks() {
            return bad("s_first_meta_bg", geometry.first_meta_bg);
        }
        if geometry.contiguous_gdt_blocks() >= geometry.group_blocks(crate::GroupNo(0)) {
            return bad("group descriptor blocks", geometry.contiguous_gdt_blocks());
        }
        Ok(())
    }

    fn check_size(&self, geometry: &Geometry, device_bytes: u64) -> Result<(), Corrupt> {
        if geometry.blocks_count > device_bytes >> geometry.block_bits {
            return bad("s_blocks_count (past the device's end)", geometry.blocks_count);
        }
        // Group 0 always holds a superblock and a descriptor.
        let need = geometry.super_location().0.0 + 2;
        if geometry.blocks_count < need {
            return bad("s_blocks_count", geometry.blocks_count);
        }
        Ok(())
    }
}
