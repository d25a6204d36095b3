//! The block map of files without extents: 12 direct pointers and three trees of pointers.
//!
//! A pointer has 32 bits; 0 is a hole. The same functions access the 15 words of the inode's block
//! area and the words of an indirect block.
//!
//! Source: ext4 disk layout documentation, "Direct/Indirect Block Addressing".

use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use crate::error::{Corrupt, Structure};
use crate::{BlockNo, FileBlock, Geometry};

/// The number of direct pointers in the inode.
pub const DIRECT: u32 = 12;
/// The index of the inode's pointer to a block of pointers.
pub const SINGLE: usize = 12;
/// The index of the inode's pointer to the tree of two levels.
pub const DOUBLE: usize = 13;
/// The index of the inode's pointer to the tree of three levels.
pub const TRIPLE: usize = 14;

fn words(bytes: &[u8]) -> &[U32] {
    <[U32]>::ref_from_bytes(&bytes[..bytes.len() / 4 * 4]).expect("a whole number of words")
}

/// The number of pointers in one block, or in an inode's block area.
#[must_use]
pub fn count(bytes: &[u8]) -> usize {
    bytes.len() / 4
}

/// The pointer at `index`; 0 for a hole or past the end.
#[must_use]
pub fn pointer(bytes: &[u8], index: usize) -> BlockNo {
    BlockNo(words(bytes).get(index).map_or(0, |word| u64::from(word.get())))
}

/// Stores a pointer.
///
/// # Panics
///
/// If `index` is past the end, or the block number has more than 32 bits. The allocator never gives
/// such a block to a file without extents.
pub fn set_pointer(bytes: &mut [u8], index: usize, block: BlockNo) {
    let len = bytes.len() / 4 * 4;
    let words = <[U32]>::mut_from_bytes(&mut bytes[..len]).expect("a whole number of words");
    words[index].set(u32::try_from(block.0).expect("indirect maps reach 32-bit blocks only"));
}

/// Whether all pointers are holes.
#[must_use]
pub fn is_empty(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Checks that each pointer is a hole or a block of the volume.
///
/// # Errors
///
/// The first invalid pointer.
pub fn check(geometry: &Geometry, bytes: &[u8]) -> Result<(), Corrupt> {
    let bad = |word: &&U32| word.get() != 0 && !geometry.holds_run(BlockNo(word.get().into()), 1);
    match words(bytes).iter().find(bad) {
        Some(word) => Err(Corrupt::field(Structure::IndirectBlock, "block pointer", word.get())),
        None => Ok(()),
    }
}

/// The indices of the pointers from the inode to a file block: the first into the inode's 15 words,
/// each further one into the block that the previous pointer names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    steps: [u32; 4],
    len: usize,
}

impl Path {
    /// The path to `block`, or `None` if no file is that large.
    #[must_use]
    pub fn to(geometry: &Geometry, block: FileBlock) -> Option<Self> {
        let per_block = u64::from(geometry.block_size / 4);
        let mut left = u64::from(block.0);
        if left < u64::from(DIRECT) {
            return Some(Self { steps: [block.0, 0, 0, 0], len: 1 });
        }
        left -= u64::from(DIRECT);
        let mut reach = per_block;
        for levels in 1..=3u32 {
            if left < reach {
                let mut steps = [SINGLE as u32 + levels - 1, 0, 0, 0];
                for step in steps[1..=levels as usize].iter_mut().rev() {
                    *step = (left % per_block) as u32;
                    left /= per_block;
                }
                return Some(Self { steps, len: levels as usize + 1 });
            }
            left -= reach;
            reach *= per_block;
        }
        None
    }

    /// The indices, starting at the inode.
    #[must_use]
    pub fn steps(&self) -> &[u32] {
        &self.steps[..self.len]
    }
}

/// The number of file blocks that a block map can address.
#[must_use]
pub fn max_blocks(geometry: &Geometry) -> u64 {
    let per_block = u64::from(geometry.block_size / 4);
    let all = u64::from(DIRECT) + per_block * (1 + per_block * (1 + per_block));
    all.min(u64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Image;

    #[test]
    fn paths_reach_each_level() {
        let image = Image::make("block-map", "-t ext2 -b 1024", "1m");
        let geometry = image.geometry();
        let steps = |n| Path::to(&geometry, FileBlock(n)).unwrap().steps().to_vec();
        assert_eq!(steps(11), [11]);
        assert_eq!(steps(12), [12, 0]);
        assert_eq!(steps(267), [12, 255]);
        assert_eq!(steps(268), [13, 0, 0]);
        assert_eq!(steps(268 + 65535), [13, 255, 255]);
        assert_eq!(steps(268 + 65536), [14, 0, 0, 0]);
        assert_eq!(Path::to(&geometry, FileBlock(max_blocks(&geometry) as u32)), None);
        let mut bytes = [0u8; 60];
        set_pointer(&mut bytes, 14, BlockNo(7));
        assert_eq!((pointer(&bytes, 14), pointer(&bytes, 15)), (BlockNo(7), BlockNo(0)));
        check(&geometry, &bytes).unwrap();
        set_pointer(&mut bytes, 3, BlockNo(1024));
        assert!(check(&geometry, &bytes).is_err());
    }
}
