//! Journal credits: how many metadata blocks each step may change at most.
//!
//! The journal refuses a handle that asks for more than half of a transaction, so no estimate may
//! exceed what the smallest journal grants. [`LARGEST`] bounds all estimates; a volume with
//! a smaller journal is not opened for writing. Longer operations (removing blocks, moving extents)
//! use several handles.

#[cfg(test)]
mod tests;

use nextent_ondisk::Geometry;

use crate::dir::InsertCost;
use crate::map::{self, MapRoot};

/// The most credits with which a handle starts.
pub(crate) const LARGEST: u32 = 80;

/// An inode's table block.
pub(crate) const INODE: u32 = 1;
/// A bit in a bitmap: the bitmap and its group's descriptor.
pub(crate) const BIT: u32 = 2;
/// Adding or removing an orphan: a block of the orphan file, or the superblock and two inodes.
pub(crate) const ORPHAN: u32 = 3;
/// Allocating an inode: bitmap, descriptor, table block.
pub(crate) const NEW_INODE: u32 = BIT + INODE;
/// Attributes of one inode: two blocks are allocated or freed, with their bitmaps; the superblock's
/// feature.
pub(crate) const XATTR: u32 = crate::xattr::CREDITS + 2 * BIT + INODE + 1;
/// The first block of a directory, or of a symbolic link's target.
pub(crate) const FIRST_BLOCK: u32 = 1 + BIT + INODE + 3 * (1 + BIT);
/// Removing or replacing a name.
pub(crate) const REMOVE_NAME: u32 = 4;
/// The last step of freeing an inode.
pub(crate) const REAP: u32 = XATTR + ORPHAN + NEW_INODE + 8;
/// Mapping a run of data, in addition to the map's own estimate.
pub(crate) const RUN: u32 = 2 * BIT + INODE + 1;
/// One more level of a map.
const ONE_MORE_LEVEL: u32 = 6;
/// The start of a removal of blocks, which extends its handle as needed.
pub(crate) const REMOVAL: u32 = RUN + 2 * ORPHAN + 24;
/// Like [`REMOVAL`], without an orphan.
pub(crate) const PUNCH: u32 = RUN + 24;
/// A file without a name.
pub(crate) const TMPFILE: u32 = NEW_INODE + 2 * XATTR + ORPHAN;
/// Removing a name and making the file an orphan.
pub(crate) const UNLINK: u32 = REMOVE_NAME + 2 * INODE + ORPHAN;

/// Adding a name to a directory whose map is `root`.
pub(crate) fn entry(cost: InsertCost, root: &MapRoot, geometry: &Geometry) -> u32 {
    let map = map::append_credits(root, geometry, cost.appends);
    cost.changes + cost.appends * (1 + BIT) + map + INODE
}

/// A new inode with a name that costs `entry`.
pub(crate) fn create(entry: u32) -> u32 {
    NEW_INODE + 2 * XATTR + FIRST_BLOCK + ORPHAN + entry
}

/// Another name, which costs `entry`.
pub(crate) fn link(entry: u32) -> u32 {
    entry + ORPHAN + 2 * INODE
}

/// Moving or exchanging a name; the new one costs `entry`.
pub(crate) fn rename(entry: u32) -> u32 {
    entry + 4 * REMOVE_NAME + ORPHAN + 4 * INODE
}

/// The same, with a whiteout as the old name. A whiteout has no attributes.
pub(crate) fn rename_leaving_whiteout(entry: u32) -> u32 {
    rename(entry) + NEW_INODE + ORPHAN
}

/// Mapping a run of at most `blocks` new blocks of data, at most [`map::max_insert_len`]. Also for
/// marking mapped blocks as written.
pub(crate) fn insert_run(root: &MapRoot, geometry: &Geometry, blocks: u32) -> u32 {
    map::insert_credits(root, geometry, blocks).max(map::change_credits(root)) + RUN + 1
}

/// Like [`insert_run`], where the map may get one more level before it is changed.
pub(crate) fn insert_run_shared(root: &MapRoot, geometry: &Geometry, blocks: u32) -> u32 {
    map::insert_credits(root, geometry, blocks) + RUN + ONE_MORE_LEVEL
}

/// Marking unwritten blocks as written, where the map may get one more level before that.
pub(crate) fn convert_shared(root: &MapRoot) -> u32 {
    map::change_credits(root) + INODE + ONE_MORE_LEVEL
}

/// A step of a removal from a file's map; the last step also needs [`ORPHAN`].
pub(crate) fn remove(root: &MapRoot, geometry: &Geometry) -> u32 {
    map::remove_credits(root, geometry) + INODE
}

/// A step of moving extents along a file, including its size.
pub(crate) fn shift(root: &MapRoot) -> u32 {
    map::shift_credits(root) + 2 * INODE + 1
}
