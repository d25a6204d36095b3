//! Blocks of the orphan file: inode numbers (0 for a free entry), a magic number and a checksum.
//!
//! Source: ext4 disk layout documentation, "Orphan file".

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{csum, csum_u64};
use crate::error::{Corrupt, Structure};
use crate::{BlockNo, Geometry, InodeNo};

/// The magic number at the end of each block.
pub const MAGIC: u32 = 0x0B10_CA04;
/// The most blocks an orphan file may have.
pub const MAX_BLOCKS: u64 = 512;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTail {
    magic: U32,
    checksum: U32,
}

const TAIL: usize = size_of::<RawTail>();

/// Entries of a block.
#[must_use]
pub fn per_block(geometry: &Geometry) -> usize {
    (geometry.block_len() - TAIL) / 4
}

fn split(block: &[u8]) -> Option<(&[U32], &RawTail)> {
    let (rest, tail) = RawTail::ref_from_suffix(block).ok()?;
    let slots = <[U32]>::ref_from_bytes(&rest[..rest.len() / 4 * 4]).ok()?;
    Some((slots, tail))
}

/// Checks the magic number of a block, and that each entry is 0 or an existing inode.
///
/// # Errors
///
/// The first broken rule. [`verify`] checks the checksum.
pub fn check(geometry: &Geometry, block: &[u8]) -> Result<(), Corrupt> {
    let short = || Corrupt::too_short(Structure::OrphanFile, geometry.block_len(), block.len());
    let (slots, tail) =
        split(block).filter(|_| block.len() == geometry.block_len()).ok_or_else(short)?;
    if tail.magic.get() != MAGIC {
        return Err(Corrupt::magic(Structure::OrphanFile, tail.magic.get()));
    }
    match slots.iter().find(|slot| slot.get() > geometry.inodes_count) {
        Some(slot) => Err(Corrupt::field(Structure::OrphanFile, "inode number", slot.get())),
        None => Ok(()),
    }
}

/// Makes `block` a block without orphans. [`seal`] sets its checksum.
///
/// # Panics
///
/// If `block` is shorter than 8 bytes.
pub fn init(block: &mut [u8]) {
    block.fill(0);
    let (_, tail) = RawTail::mut_from_suffix(block).expect("a block has room for its tail");
    tail.magic.set(MAGIC);
}

/// The orphans of a block, each with the index of its entry.
pub fn orphans(block: &[u8]) -> impl Iterator<Item = (usize, InodeNo)> + '_ {
    let slots = split(block).map_or(&[][..], |(slots, _)| slots);
    slots
        .iter()
        .enumerate()
        .filter(|(_, slot)| slot.get() != 0)
        .map(|(at, slot)| (at, InodeNo(slot.get())))
}

/// Stores an inode number in the entry `place`; 0 frees the entry.
///
/// # Panics
///
/// If the block has no such entry.
pub fn set(block: &mut [u8], place: usize, ino: InodeNo) {
    let len = block.len() - TAIL;
    let slots = <[U32]>::mut_from_bytes(&mut block[..len]).expect("a whole number of places");
    slots[place].set(ino.0);
}

fn checksum(seed: u32, no: BlockNo, block: &[u8]) -> u32 {
    csum(csum_u64(seed, no.0), &block[..block.len() - TAIL])
}

/// Stores the checksum of block `no`. `seed` is that of the orphan file's inode.
///
/// # Panics
///
/// If `block` is shorter than 8 bytes.
pub fn seal(seed: u32, no: BlockNo, block: &mut [u8]) {
    let sum = checksum(seed, no, block);
    let (_, tail) = RawTail::mut_from_suffix(block).expect("a block has room for its tail");
    tail.checksum.set(sum);
}

/// Compares the checksum of block `no`. Call it only with the feature `metadata_csum`.
///
/// # Errors
///
/// A wrong checksum.
pub fn verify(seed: u32, no: BlockNo, block: &[u8]) -> Result<(), Corrupt> {
    let Some((_, tail)) = split(block) else {
        return Err(Corrupt::too_short(Structure::OrphanFile, TAIL, block.len()));
    };
    let (found, expected) = (tail.checksum.get(), checksum(seed, no, block));
    if found != expected {
        return Err(Corrupt::checksum(Structure::OrphanFile, found, expected).at_block(no));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Inode;
    use crate::testing::Image;

    #[test]
    fn the_file_of_mke2fs_verifies_and_takes_orphans() {
        let image = Image::make("orphan-file", "-t ext4 -O orphan_file", "64m");
        let geometry = image.geometry();
        let ino = InodeNo(image.superblock().orphan_file_inum.get());
        let inode = Inode::read(&geometry, image.inode_bytes(ino)).unwrap();
        let seed = inode.csum_seed(&geometry, ino);
        let blocks = image.file_blocks(ino);
        assert_eq!(blocks.len(), 32);
        for no in blocks {
            let block = image.block(no);
            check(&geometry, block).unwrap();
            verify(seed, no, block).unwrap();
            let mut copy = vec![1; block.len()];
            init(&mut copy);
            set(&mut copy, per_block(&geometry) - 1, InodeNo(13));
            let last = per_block(&geometry) - 1;
            assert_eq!(orphans(&copy).collect::<Vec<_>>(), [(last, InodeNo(13))]);
            assert!(verify(seed, no, &copy).is_err());
            set(&mut copy, last, InodeNo(0));
            seal(seed, no, &mut copy);
            assert_eq!(copy, block);
            set(&mut copy, 0, InodeNo(u32::MAX));
            assert!(check(&geometry, &copy).is_err());
        }
        for len in 0..20 {
            let short = vec![0; len];
            assert!(check(&geometry, &short).is_err());
            assert!(orphans(&short).next().is_none());
            let _ = verify(seed, BlockNo(1), &short);
        }
    }
}
