//! Block and inode bitmaps. Bit `n` is bit `n % 8` of byte `n / 8`; a set bit means in use.
//!
//! The group descriptor stores the checksums: 32 bits if descriptors have 64 bytes, else the low
//! 16.
//!
//! Source: ext4 disk layout documentation, "Block and Inode Bitmaps".

use crate::checksum::csum;
use crate::error::{Corrupt, Structure};
use crate::{BlockNo, Geometry, GroupDesc, GroupNo};

/// The block bitmap that the flag `BLOCK_UNINIT` implies, one bit a block. The superblock and
/// descriptors at the group's start are in use, and so are the group's own bitmaps and inode table
/// where they lie in the group. Metadata of other groups does not count.
#[must_use]
pub fn implied(geometry: &Geometry, group: GroupNo, desc: &GroupDesc) -> Vec<u8> {
    let mut bitmap = vec![0; geometry.block_bitmap_bytes()];
    let first = geometry.group_first_block(group).0;
    let last = first + u64::from(geometry.group_blocks(group));
    let head = geometry.head_blocks(group);
    let own = |block: BlockNo, len: u32| block.0..block.0.saturating_add(len.into());
    for run in [
        head,
        own(desc.block_bitmap, 1),
        own(desc.inode_bitmap, 1),
        own(desc.inode_table, geometry.inode_table_blocks),
    ] {
        let (start, end) = (run.start.max(first), run.end.min(last));
        // An offset within a group has 32 bits.
        if let (true, Ok(at), Ok(len)) =
            (start < end, u32::try_from(start - first), u32::try_from(end.saturating_sub(start)))
        {
            set_run(&mut bitmap, at, len);
        }
    }
    bitmap
}

/// Whether bit `n` is set. A bit past the end counts as set.
#[must_use]
pub fn test(bitmap: &[u8], n: u32) -> bool {
    bitmap.get((n / 8) as usize).is_none_or(|byte| byte >> (n % 8) & 1 == 1)
}

/// Sets `len` bits from `start`.
///
/// # Panics
///
/// If the run ends past the bitmap.
pub fn set_run(bitmap: &mut [u8], start: u32, len: u32) {
    each_byte(bitmap, start, len, |byte, mask| *byte |= mask);
}

/// Clears `len` bits from `start`.
///
/// # Panics
///
/// If the run ends past the bitmap.
pub fn clear_run(bitmap: &mut [u8], start: u32, len: u32) {
    each_byte(bitmap, start, len, |byte, mask| *byte &= !mask);
}

fn each_byte(bitmap: &mut [u8], start: u32, len: u32, change: impl Fn(&mut u8, u8)) {
    let (mut bit, end) = (start as usize, start as usize + len as usize);
    assert!(end <= bitmap.len() * 8, "a run of bits must lie inside its bitmap");
    while bit < end {
        let low = bit % 8;
        let high = (end - bit + low).min(8);
        let mask = ((1u16 << high) - (1u16 << low)) as u8;
        change(&mut bitmap[bit / 8], mask);
        bit += high - low;
    }
}

/// The number of clear bits among the first `len`.
#[must_use]
pub fn count_clear(bitmap: &[u8], len: u32) -> u32 {
    let len = (len as usize).min(bitmap.len() * 8);
    let whole: u32 = bitmap[..len / 8].iter().map(|byte| byte.count_zeros()).sum();
    let rest = (len / 8 * 8..len).filter(|bit| !test(bitmap, *bit as u32)).count();
    whole + rest as u32
}

/// The first clear bit in `from..end`.
#[must_use]
pub fn find_clear(bitmap: &[u8], from: u32, end: u32) -> Option<u32> {
    let mut bit = from;
    while bit < end {
        match bitmap.get((bit / 8) as usize) {
            None => return None,
            Some(0xff) => bit = (bit / 8 + 1) * 8,
            Some(byte) if byte >> (bit % 8) & 1 == 1 => bit += 1,
            Some(_) => return Some(bit),
        }
    }
    None
}

/// The first set bit in `from..end`.
#[must_use]
pub fn find_set(bitmap: &[u8], from: u32, end: u32) -> Option<u32> {
    let mut bit = from;
    while bit < end {
        match bitmap.get((bit / 8) as usize) {
            None => return None,
            Some(0) => bit = (bit / 8 + 1) * 8,
            Some(byte) if byte >> (bit % 8) & 1 == 0 => bit += 1,
            Some(_) => return Some(bit),
        }
    }
    None
}

/// Sets the bits from `len` to the bitmap's end, because blocks that do not exist count as in use.
pub fn pad(bitmap: &mut [u8], len: u32) {
    let all = (bitmap.len() * 8) as u32;
    if len < all {
        set_run(bitmap, len, all - len);
    }
}

fn sum(geometry: &Geometry, bitmap: &[u8], bytes: usize) -> u32 {
    csum(geometry.csum_seed, &bitmap[..bytes.min(bitmap.len())])
}

/// The checksum of a block bitmap, as [`GroupDesc::block_bitmap_csum`] stores it.
#[must_use]
pub fn block_checksum(geometry: &Geometry, bitmap: &[u8]) -> u32 {
    sum(geometry, bitmap, geometry.block_bitmap_bytes()) & mask(geometry)
}

/// The checksum of an inode bitmap, as [`GroupDesc::inode_bitmap_csum`] stores it.
#[must_use]
pub fn inode_checksum(geometry: &Geometry, bitmap: &[u8]) -> u32 {
    sum(geometry, bitmap, geometry.inode_bitmap_bytes()) & mask(geometry)
}

fn mask(geometry: &Geometry) -> u32 {
    if geometry.desc_size >= 64 { u32::MAX } else { 0xffff }
}

/// Compares a block bitmap with its checksum if the features require one.
///
/// # Errors
///
/// A wrong checksum.
pub fn verify_block_bitmap(
    geometry: &Geometry,
    group: GroupNo,
    desc: &GroupDesc,
    bitmap: &[u8],
) -> Result<(), Corrupt> {
    let expected = block_checksum(geometry, bitmap);
    if geometry.features.metadata_csum() && desc.block_bitmap_csum != expected {
        let found = desc.block_bitmap_csum;
        return Err(Corrupt::checksum(Structure::BlockBitmap, found, expected).at_group(group));
    }
    Ok(())
}

/// Compares an inode bitmap with its checksum if the features require one.
///
/// # Errors
///
/// A wrong checksum.
pub fn verify_inode_bitmap(
    geometry: &Geometry,
    group: GroupNo,
    desc: &GroupDesc,
    bitmap: &[u8],
) -> Result<(), Corrupt> {
    let expected = inode_checksum(geometry, bitmap);
    if geometry.features.metadata_csum() && desc.inode_bitmap_csum != expected {
        let found = desc.inode_bitmap_csum;
        return Err(Corrupt::checksum(Structure::InodeBitmap, found, expected).at_group(group));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_set_cleared_counted_and_found() {
        let mut map = [0u8; 8];
        set_run(&mut map, 3, 20);
        assert_eq!(map, [0xf8, 0xff, 0x7f, 0, 0, 0, 0, 0]);
        assert_eq!(count_clear(&map, 64), 44);
        assert_eq!(count_clear(&map, 5), 3);
        assert_eq!(find_clear(&map, 3, 64), Some(23));
        assert_eq!(find_set(&map, 0, 64), Some(3));
        assert_eq!(find_set(&map, 23, 64), None);
        clear_run(&mut map, 8, 8);
        assert_eq!(map[1], 0);
        pad(&mut map, 61);
        assert_eq!(map[7], 0xe0);
        assert!(test(&map, 1000) && !test(&map, 60));
    }
}
