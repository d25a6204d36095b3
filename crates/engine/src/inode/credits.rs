//! Journal credits: how many metadata blocks each step may change, at most.
//!
//! A handle that asks for more than half of a transaction is refused, so no estimate may be larger
//! than what the smallest journal grants. [`LARGEST`] bounds them all; a smaller journal is not
//! written to. What can be larger (removing blocks, moving extents) goes in several handles.

#[cfg(test)]
mod tests;

use nextent_ondisk::Geometry;

use crate::dir::InsertCost;
use crate::map::{self, MapRoot};

/// Most credits that a handle asks for when it starts.
pub(crate) const LARGEST: u32 = 80;

/// An inode's table block.
pub(crate) const INODE: u32 = 1;
/// A bit in a bitmap: the bitmap and its group's descriptor.
pub(crate) const BIT: u32 = 2;
/// Making or removing an orphan: orphan file block, or superblock and two inodes.
pub(crate) const ORPHAN: u32 = 3;
/// Taking a new inode: bitmap, descriptor, table block.
pub(crate) const NEW_INODE: u32 = BIT + INODE;
/// Attributes of one inode: two blocks come or go, with their bitmaps; the superblock says that
/// there are any.
pub(crate) const XATTR: u32 = crate::xattr::CREDITS + 2 * BIT + INODE + 1;
/// The first block of a directory or of a link's target.
pub(crate) const FIRST_BLOCK: u32 = 1 + BIT + INODE + 3 * (1 + BIT);
/// A name taken out or replaced.
pub(crate) const UNNAME: u32 = 4;
/// The last step of freeing an inode.
pub(crate) const REAP: u32 = XATTR + ORPHAN + NEW_INODE + 8;
/// A run of data put into a map, besides what the map says it needs.
pub(crate) const RUN: u32 = 2 * BIT + INODE + 1;
/// A level that a map has more.
const GROWN: u32 = 6;
/// The start of a removal of blocks, which takes more as it needs.
pub(crate) const REMOVAL: u32 = RUN + 2 * ORPHAN + 24;
/// The same, where nothing becomes an orphan.
pub(crate) const PUNCH: u32 = RUN + 24;
/// A file without a name.
pub(crate) const TMPFILE: u32 = NEW_INODE + 2 * XATTR + ORPHAN;
/// A name taken out, the file an orphan.
pub(crate) const UNLINK: u32 = UNNAME + 2 * INODE + ORPHAN;

/// A name added to a directory whose map is `root`.
pub(crate) fn entry(cost: InsertCost, root: &MapRoot, geometry: &Geometry) -> u32 {
    let map = map::append_credits(root, geometry, cost.appends);
    cost.changes + cost.appends * (1 + BIT) + map + INODE
}

/// A new inode with a name, which costs `entry`.
pub(crate) fn create(entry: u32) -> u32 {
    NEW_INODE + 2 * XATTR + FIRST_BLOCK + ORPHAN + entry
}

/// Another name, which costs `entry`.
pub(crate) fn link(entry: u32) -> u32 {
    entry + ORPHAN + 2 * INODE
}

/// A name moved or exchanged, the new one costing `entry`.
pub(crate) fn rename(entry: u32) -> u32 {
    entry + 4 * UNNAME + ORPHAN + 4 * INODE
}

/// A run of at most `blocks` new blocks of data, at most [`map::most_inserted`]; also for making
/// blocks written that are mapped.
pub(crate) fn place(root: &MapRoot, geometry: &Geometry, blocks: u32) -> u32 {
    map::insert_credits(root, geometry, blocks).max(map::change_credits(root)) + RUN + 1
}

/// As [`place`], where the map may have a level more by the time it is changed.
pub(crate) fn place_in_shared(root: &MapRoot, geometry: &Geometry, blocks: u32) -> u32 {
    map::insert_credits(root, geometry, blocks) + RUN + GROWN
}

/// Unwritten blocks made written, where the map may have a level more by then.
pub(crate) fn convert_in_shared(root: &MapRoot) -> u32 {
    map::change_credits(root) + INODE + GROWN
}

/// A step of a removal from a file's map; [`ORPHAN`] for what follows the last one.
pub(crate) fn remove(root: &MapRoot, geometry: &Geometry) -> u32 {
    map::remove_credits(root, geometry) + INODE
}

/// A step of moving extents along a file, with its size.
pub(crate) fn shift(root: &MapRoot) -> u32 {
    map::shift_credits(root) + 2 * INODE + 1
}
