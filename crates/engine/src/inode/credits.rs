//! Journal credits: how many metadata blocks each step may change, at most.

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
