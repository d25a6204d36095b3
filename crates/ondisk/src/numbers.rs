//! Reserved inode numbers.
//!
//! Source: ext4 disk layout documentation, "Special inodes".

use crate::InodeNo;

/// The list of bad blocks.
pub const BAD_BLOCKS_INO: InodeNo = InodeNo(1);
/// The root directory.
pub const ROOT_INO: InodeNo = InodeNo(2);
/// The user quota file.
pub const USER_QUOTA_INO: InodeNo = InodeNo(3);
/// The group quota file.
pub const GROUP_QUOTA_INO: InodeNo = InodeNo(4);
/// The boot loader.
pub const BOOT_LOADER_INO: InodeNo = InodeNo(5);
/// The undelete directory. No system uses it.
pub const UNDELETE_DIR_INO: InodeNo = InodeNo(6);
/// The inode that owns the blocks reserved for growth of the descriptor table.
pub const RESIZE_INO: InodeNo = InodeNo(7);
/// The journal.
pub const JOURNAL_INO: InodeNo = InodeNo(8);
/// The first inode for files on a revision 0 volume. By convention it is `lost+found`.
pub const FIRST_GOOD_OLD_INO: InodeNo = InodeNo(11);
