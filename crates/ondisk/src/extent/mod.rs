//! Extent trees: nodes of 12-byte entries, with the root in the inode's block area.
//!
//! [`check`] validates a whole node once, after it is read. [`Node`] then reads typed entries and
//! [`NodeMut`] changes them. Neither panics on unchecked bytes that have the magic number, because
//! neither uses more entries than the bytes hold.
//!
//! Source: ext4 disk layout documentation, "Extent Tree".

mod node;

pub use node::{Node, NodeMut, set_extent_len};
pub(crate) use node::{bytes_of_one, parse_one};

use std::ops::Range;

use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use crate::checksum::csum;
use crate::error::{Corrupt, Structure};
use crate::{BlockNo, FileBlock, Geometry};

/// The magic number of a node.
pub const MAGIC: u16 = 0xF30A;
/// Bytes of a header, and of each entry.
pub const ENTRY_SIZE: usize = 12;
/// The deepest tree: five levels of index above the leaves.
pub const MAX_DEPTH: u16 = 5;
/// Entries that fit into the root in the inode.
pub const ROOT_ENTRIES: u16 = 4;
/// Blocks of the longest written extent. A larger stored length means an unwritten extent.
pub const MAX_WRITTEN_LEN: u32 = 32768;
/// Blocks of the longest unwritten extent.
pub const MAX_UNWRITTEN_LEN: u32 = 32767;
/// The first file block that an extent cannot map.
pub const END_OF_FILE_BLOCKS: u64 = u32::MAX as u64;

/// A run of file blocks and its blocks on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first file block.
    pub block: FileBlock,
    /// The number of blocks, from 1 to [`MAX_WRITTEN_LEN`] or [`MAX_UNWRITTEN_LEN`].
    pub len: u32,
    /// The first block on the volume.
    pub start: BlockNo,
    /// Whether the blocks are allocated but read as zeros.
    pub unwritten: bool,
}

impl Extent {
    /// The file block after the run. It may be one past the largest [`FileBlock`].
    #[must_use]
    pub fn end(&self) -> u64 {
        u64::from(self.block.0) + u64::from(self.len)
    }

    /// Blocks of the longest extent of this kind.
    #[must_use]
    #[inline]
    pub fn max_len(unwritten: bool) -> u32 {
        if unwritten { MAX_UNWRITTEN_LEN } else { MAX_WRITTEN_LEN }
    }
}

/// An entry of an index node: the subtree for the file blocks from `block` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    /// The first file block that the subtree may hold.
    pub block: FileBlock,
    /// The block of the subtree's node.
    pub child: BlockNo,
}

/// The header of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Entries in use.
    pub entries: u16,
    /// Entries that fit into the node.
    pub max: u16,
    /// Levels below this node; 0 for a leaf.
    pub depth: u16,
    /// Unused by ext4.
    pub generation: u32,
}

/// Entries that fit into a node of `len` bytes: 4 in the root, more in a block.
#[must_use]
#[inline]
pub const fn capacity(len: usize) -> u16 {
    let entries = len.saturating_sub(ENTRY_SIZE) / ENTRY_SIZE;
    if entries > u16::MAX as usize { u16::MAX } else { entries as u16 }
}

fn bad<T>(name: &'static str, value: impl Into<u64>) -> Result<T, Corrupt> {
    Err(Corrupt::field(Structure::ExtentNode, name, value))
}

/// The values that a node's parent prescribes.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The node's depth, one less than its parent's; `None` at the root.
    pub depth: Option<u16>,
    /// The file blocks that the node may hold: from its own entry in the parent to the next entry.
    pub range: Range<u64>,
}

impl Expected {
    /// The root may have any depth and hold any file block.
    pub const ROOT: Self = Self { depth: None, range: 0..END_OF_FILE_BLOCKS };
}

/// Checks a whole node: header, each entry, order, overlap, and that all block numbers are on the
/// volume. Bytes that pass need no further check.
///
/// # Errors
///
/// The first broken rule.
pub fn check(geometry: &Geometry, bytes: &[u8], expected: &Expected) -> Result<Header, Corrupt> {
    let node = Node::new(bytes)?;
    let header = node.header();
    if header.depth > MAX_DEPTH || expected.depth.is_some_and(|depth| depth != header.depth) {
        return bad("eh_depth", header.depth);
    }
    if header.max == 0 || header.max > capacity(bytes.len()) {
        return bad("eh_max", header.max);
    }
    if header.entries > header.max || (header.entries == 0 && header.depth > 0) {
        return bad("eh_entries", header.entries);
    }
    if header.depth == 0 {
        check_leaf(geometry, node, &expected.range)?;
    } else {
        check_index(geometry, node, &expected.range)?;
    }
    Ok(header)
}

fn check_leaf(geometry: &Geometry, node: Node<'_>, range: &Range<u64>) -> Result<(), Corrupt> {
    let mut next = range.start;
    for extent in node.extents() {
        if u64::from(extent.block.0) < next {
            return bad("ee_block", extent.block.0);
        }
        if extent.len == 0 || extent.end() > range.end.min(END_OF_FILE_BLOCKS) {
            return bad("ee_len", extent.len);
        }
        if !geometry.holds_run(extent.start, u64::from(extent.len)) {
            return bad("ee_start", extent.start.0);
        }
        next = extent.end();
    }
    Ok(())
}

fn check_index(geometry: &Geometry, node: Node<'_>, range: &Range<u64>) -> Result<(), Corrupt> {
    let mut next = range.start;
    for index in node.indexes() {
        let block = u64::from(index.block.0);
        if block < next || block >= range.end {
            return bad("ei_block", block);
        }
        if !geometry.holds_run(index.child, 1) {
            return bad("ei_leaf", index.child.0);
        }
        next = block + 1;
    }
    Ok(())
}

/// Offset of the checksum of a node in a block: after the last entry that fits.
fn tail_at(bytes: &[u8]) -> Option<usize> {
    let max = Node::new(bytes).ok()?.header().max;
    let at = ENTRY_SIZE + usize::from(max) * ENTRY_SIZE;
    (at + 4 <= bytes.len()).then_some(at)
}

/// Stores the checksum of a node in a block. `seed` is the inode's. The root in the inode has no
/// checksum. Bytes without the magic number stay unchanged.
pub fn seal(seed: u32, _no: BlockNo, bytes: &mut [u8]) {
    if let Some(at) = tail_at(bytes) {
        let sum = csum(seed, &bytes[..at]);
        if let Ok((tail, _)) = U32::mut_from_prefix(&mut bytes[at..]) {
            tail.set(sum);
        }
    }
}

/// Compares the checksum of a node in a block. Call it only with the feature `metadata_csum`.
///
/// # Errors
///
/// A wrong checksum, or a node without space for one.
pub fn verify(seed: u32, bytes: &[u8]) -> Result<(), Corrupt> {
    Node::new(bytes)?;
    let Some(at) = tail_at(bytes) else {
        return bad("eh_max", Node::new(bytes)?.header().max);
    };
    let (tail, _) = U32::ref_from_prefix(&bytes[at..]).expect("four bytes are there");
    let (found, expected) = (tail.get(), csum(seed, &bytes[..at]));
    if found != expected {
        return Err(Corrupt::checksum(Structure::ExtentNode, found, expected));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
