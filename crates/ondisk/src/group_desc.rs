//! Group descriptors: the locations of a group's bitmaps and inode table, and the group's counts.
//!
//! A [`GroupDesc`] has all numbers at full width. [`GroupDesc::read`] accepts any bytes.
//! [`GroupDesc::check`] compares the block numbers with the geometry. [`GroupDesc::write`] changes
//! only the fields that the format defines (32 or 64 bytes). Then [`seal`] computes the checksum of
//! the whole descriptor.
//!
//! Source: ext4 disk layout documentation, "Block Group Descriptors".

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{crc16, csum, csum_u32};
use crate::error::{Corrupt, Structure};
use crate::{BlockNo, Features, Geometry, GroupNo, Incompat, RoCompat};

/// The flags of a descriptor.
pub mod flags {
    /// The inode bitmap and table are not initialized: no inode is in use.
    pub const INODE_UNINIT: u16 = 1;
    /// The block bitmap is not initialized: only the group's own metadata is in use.
    pub const BLOCK_UNINIT: u16 = 2;
    /// The inode table is zeroed.
    pub const INODE_ZEROED: u16 = 4;
}

const CSUM_AT: usize = 0x1E;

/// The first half of a descriptor, as stored.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    block_bitmap_lo: U32,
    inode_bitmap_lo: U32,
    inode_table_lo: U32,
    free_blocks_lo: U16,
    free_inodes_lo: U16,
    used_dirs_lo: U16,
    flags: U16,
    exclude_bitmap_lo: U32,
    block_bitmap_csum_lo: U16,
    inode_bitmap_csum_lo: U16,
    itable_unused_lo: U16,
    checksum: U16,
}

/// The second half, in descriptors of 64 bytes or more.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHigh {
    block_bitmap_hi: U32,
    inode_bitmap_hi: U32,
    inode_table_hi: U32,
    free_blocks_hi: U16,
    free_inodes_hi: U16,
    used_dirs_hi: U16,
    itable_unused_hi: U16,
    exclude_bitmap_hi: U32,
    block_bitmap_csum_hi: U16,
    inode_bitmap_csum_hi: U16,
    reserved: U32,
}

const _: () = assert!(size_of::<Raw>() == 32 && size_of::<RawHigh>() == 32);

/// One group's descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupDesc {
    /// The block of the block bitmap.
    pub block_bitmap: BlockNo,
    /// The block of the inode bitmap.
    pub inode_bitmap: BlockNo,
    /// The first block of the inode table.
    pub inode_table: BlockNo,
    /// Free clusters.
    pub free_clusters: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Inodes that are directories.
    pub used_dirs: u32,
    /// Inodes at the end of the table that were never used.
    pub itable_unused: u32,
    /// See [`flags`].
    pub flags: u16,
    /// The block bitmap's checksum; only its low half with descriptors of 32 bytes.
    pub block_bitmap_csum: u32,
    /// The inode bitmap's checksum; only its low half with descriptors of 32 bytes.
    pub inode_bitmap_csum: u32,
    /// The descriptor's own checksum.
    pub checksum: u16,
}

fn join16(low: U16, high: Option<U16>) -> u32 {
    u32::from(low.get()) | high.map_or(0, |high| u32::from(high.get()) << 16)
}

fn join32(low: U32, high: Option<U32>) -> BlockNo {
    BlockNo(u64::from(low.get()) | high.map_or(0, |high| u64::from(high.get()) << 32))
}

impl GroupDesc {
    /// Parses a descriptor. `bytes` has the length of the volume's descriptors: 32 bytes, or at
    /// least 64.
    ///
    /// # Errors
    ///
    /// Fewer than 32 bytes.
    pub fn read(bytes: &[u8]) -> Result<Self, Corrupt> {
        let (raw, rest) = Raw::ref_from_prefix(bytes)
            .map_err(|_| Corrupt::too_short(Structure::GroupDescriptor, 32, bytes.len()))?;
        let high = RawHigh::ref_from_prefix(rest).ok().map(|(high, _)| high);
        Ok(Self {
            block_bitmap: join32(raw.block_bitmap_lo, high.map(|h| h.block_bitmap_hi)),
            inode_bitmap: join32(raw.inode_bitmap_lo, high.map(|h| h.inode_bitmap_hi)),
            inode_table: join32(raw.inode_table_lo, high.map(|h| h.inode_table_hi)),
            free_clusters: join16(raw.free_blocks_lo, high.map(|h| h.free_blocks_hi)),
            free_inodes: join16(raw.free_inodes_lo, high.map(|h| h.free_inodes_hi)),
            used_dirs: join16(raw.used_dirs_lo, high.map(|h| h.used_dirs_hi)),
            itable_unused: join16(raw.itable_unused_lo, high.map(|h| h.itable_unused_hi)),
            flags: raw.flags.get(),
            block_bitmap_csum: join16(
                raw.block_bitmap_csum_lo,
                high.map(|h| h.block_bitmap_csum_hi),
            ),
            inode_bitmap_csum: join16(
                raw.inode_bitmap_csum_lo,
                high.map(|h| h.inode_bitmap_csum_hi),
            ),
            checksum: raw.checksum.get(),
        })
    }

    /// Writes the fields, with [`Self::checksum`] unchanged, into `bytes`. Bytes that the format
    /// does not define stay.
    ///
    /// # Panics
    ///
    /// If `bytes` is shorter than 32 bytes.
    pub fn write(&self, bytes: &mut [u8]) {
        let (raw, rest) = Raw::mut_from_prefix(bytes).expect("callers pass a whole descriptor");
        raw.block_bitmap_lo.set(self.block_bitmap.0 as u32);
        raw.inode_bitmap_lo.set(self.inode_bitmap.0 as u32);
        raw.inode_table_lo.set(self.inode_table.0 as u32);
        raw.free_blocks_lo.set(self.free_clusters as u16);
        raw.free_inodes_lo.set(self.free_inodes as u16);
        raw.used_dirs_lo.set(self.used_dirs as u16);
        raw.flags.set(self.flags);
        raw.block_bitmap_csum_lo.set(self.block_bitmap_csum as u16);
        raw.inode_bitmap_csum_lo.set(self.inode_bitmap_csum as u16);
        raw.itable_unused_lo.set(self.itable_unused as u16);
        raw.checksum.set(self.checksum);
        let Ok((high, _)) = RawHigh::mut_from_prefix(rest) else { return };
        high.block_bitmap_hi.set((self.block_bitmap.0 >> 32) as u32);
        high.inode_bitmap_hi.set((self.inode_bitmap.0 >> 32) as u32);
        high.inode_table_hi.set((self.inode_table.0 >> 32) as u32);
        high.free_blocks_hi.set((self.free_clusters >> 16) as u16);
        high.free_inodes_hi.set((self.free_inodes >> 16) as u16);
        high.used_dirs_hi.set((self.used_dirs >> 16) as u16);
        high.itable_unused_hi.set((self.itable_unused >> 16) as u16);
        high.block_bitmap_csum_hi.set((self.block_bitmap_csum >> 16) as u16);
        high.inode_bitmap_csum_hi.set((self.inode_bitmap_csum >> 16) as u16);
    }

    /// Whether a flag is set and valid. Flags are valid only with descriptor checksums.
    #[must_use]
    pub fn has_flag(&self, features: &Features, flag: u16) -> bool {
        features.group_csum() && self.flags & flag != 0
    }

    /// The number of inodes at the start of the table that may have been used.
    #[must_use]
    pub fn inodes_touched(&self, geometry: &Geometry) -> u32 {
        if !geometry.features.group_csum() {
            return geometry.inodes_per_group;
        }
        if self.has_flag(&geometry.features, flags::INODE_UNINIT) {
            return 0;
        }
        geometry.inodes_per_group.saturating_sub(self.itable_unused)
    }

    /// Compares the numbers with the geometry. Bitmaps and inode table must be on the volume (in
    /// the group itself without `flex_bg`), and no count may exceed the group's size.
    ///
    /// # Errors
    ///
    /// The first impossible number.
    pub fn check(&self, geometry: &Geometry, group: GroupNo) -> Result<(), Corrupt> {
        let bad = |name, value: u64| {
            Err(Corrupt::field(Structure::GroupDescriptor, name, value).at_group(group))
        };
        let start = geometry.group_first_block(group).0;
        let inside = start..start + u64::from(geometry.group_blocks(group));
        let flexible = geometry.features.has(Incompat::FLEX_BG);
        let fits = |block: BlockNo, len: u32| {
            let end = block.0.saturating_add(u64::from(len));
            let local = inside.start <= block.0 && end <= inside.end;
            geometry.holds_run(block, u64::from(len)) && (flexible || local)
        };
        if !fits(self.block_bitmap, 1) {
            return bad("bg_block_bitmap", self.block_bitmap.0);
        }
        if !fits(self.inode_bitmap, 1) {
            return bad("bg_inode_bitmap", self.inode_bitmap.0);
        }
        if !fits(self.inode_table, geometry.inode_table_blocks) {
            return bad("bg_inode_table", self.inode_table.0);
        }
        if self.free_clusters > geometry.group_clusters(group) {
            return bad("bg_free_blocks_count", u64::from(self.free_clusters));
        }
        for (name, count) in [
            ("bg_free_inodes_count", self.free_inodes),
            ("bg_used_dirs_count", self.used_dirs),
            ("bg_itable_unused", self.itable_unused),
        ] {
            let matters = name != "bg_itable_unused" || geometry.features.group_csum();
            if matters && count > geometry.inodes_per_group {
                return bad(name, u64::from(count));
            }
        }
        Ok(())
    }
}

/// The checksum of the descriptor `bytes` of `group`, of the kind that the features require. `None`
/// if they require none.
#[must_use]
pub fn compute_checksum(geometry: &Geometry, group: GroupNo, bytes: &[u8]) -> Option<u16> {
    let features = &geometry.features;
    let head = &bytes[..bytes.len().min(CSUM_AT)];
    let tail = bytes.get(CSUM_AT + 2..).unwrap_or_default();
    if features.metadata_csum() {
        let sum = csum_u32(geometry.csum_seed, group.0);
        let sum = csum(csum(csum(sum, head), &[0; 2]), tail);
        return Some(sum as u16);
    }
    if features.has(RoCompat::GDT_CSUM) {
        let sum = crc16(!0, &geometry.uuid);
        let sum = crc16(crc16(sum, &group.0.to_le_bytes()), head);
        return Some(if features.has(Incompat::BIT64) { crc16(sum, tail) } else { sum });
    }
    None
}

/// Stores the checksum of the descriptor `bytes` if the features require one.
pub fn seal(geometry: &Geometry, group: GroupNo, bytes: &mut [u8]) {
    if let Some(sum) = compute_checksum(geometry, group, bytes)
        && let Ok((raw, _)) = Raw::mut_from_prefix(bytes)
    {
        raw.checksum.set(sum);
    }
}

/// Compares the checksum of the descriptor `bytes` if the features require one.
///
/// # Errors
///
/// A wrong checksum, or fewer than 32 bytes.
pub fn verify(geometry: &Geometry, group: GroupNo, bytes: &[u8]) -> Result<(), Corrupt> {
    let found = GroupDesc::read(bytes)?.checksum;
    match compute_checksum(geometry, group, bytes) {
        Some(sum) if sum != found => {
            let error =
                Corrupt::checksum(Structure::GroupDescriptor, u32::from(found), u32::from(sum));
            Err(error.at_group(group))
        }
        _ => Ok(()),
    }
}
