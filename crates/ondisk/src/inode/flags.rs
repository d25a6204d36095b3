//! The bits of an inode's flags.
//!
//! Source: ext4 disk layout documentation, "Inode Table", `i_flags`.

/// Secure deletion; no system implements it.
pub const SECRM: u32 = 0x1;
/// Undeletable; no system implements it.
pub const UNRM: u32 = 0x2;
/// Compressed; no system implements it.
pub const COMPR: u32 = 0x4;
/// All writes are synchronous.
pub const SYNC: u32 = 0x8;
/// Immutable.
pub const IMMUTABLE: u32 = 0x10;
/// Append only.
pub const APPEND: u32 = 0x20;
/// `dump` skips the file.
pub const NODUMP: u32 = 0x40;
/// Reads do not change the access time.
pub const NOATIME: u32 = 0x80;
/// Compression state; unused.
pub const DIRTY: u32 = 0x100;
/// Compression state; unused.
pub const COMPRBLK: u32 = 0x200;
/// Compression state; unused.
pub const NOCOMPR: u32 = 0x400;
/// Encrypted.
pub const ENCRYPT: u32 = 0x800;
/// A directory with a hash index.
pub const INDEX: u32 = 0x1000;
/// AFS magic directory.
pub const IMAGIC: u32 = 0x2000;
/// Data is journaled.
pub const JOURNAL_DATA: u32 = 0x4000;
/// Tails are not merged; unused.
pub const NOTAIL: u32 = 0x8000;
/// Directory changes are synchronous.
pub const DIRSYNC: u32 = 0x10000;
/// The top of directory hierarchies; a hint for placement.
pub const TOPDIR: u32 = 0x20000;
/// The block count is in file system blocks.
pub const HUGE_FILE: u32 = 0x40000;
/// The block map is an extent tree.
pub const EXTENTS: u32 = 0x80000;
/// Protected by a Merkle tree.
pub const VERITY: u32 = 0x10_0000;
/// Holds the value of an extended attribute.
pub const EA_INODE: u32 = 0x20_0000;
/// Has blocks past the end; obsolete.
pub const EOFBLOCKS: u32 = 0x40_0000;
/// Direct access to persistent memory.
pub const DAX: u32 = 0x200_0000;
/// Data lies in the inode.
pub const INLINE_DATA: u32 = 0x1000_0000;
/// New files inherit the project.
pub const PROJINHERIT: u32 = 0x2000_0000;
/// A directory that ignores case.
pub const CASEFOLD: u32 = 0x4000_0000;
/// Reserved for e2fsprogs' library.
pub const RESERVED: u32 = 0x8000_0000;

/// Flags that the flag system calls show.
pub const USER_VISIBLE: u32 = 0x725B_DFFF;
/// Flags that the flag system calls may change.
pub const USER_MODIFIABLE: u32 = 0x624B_C0FF;
/// Flags of files whose contents no program may change. Those of a file with [`VERITY`] have
/// hashes behind its end.
pub const FIXED_CONTENTS: u32 = IMMUTABLE | VERITY;
/// Flags that a new file inherits from its directory.
pub const INHERITED: u32 = SECRM
    | UNRM
    | COMPR
    | SYNC
    | NODUMP
    | NOATIME
    | NOCOMPR
    | JOURNAL_DATA
    | NOTAIL
    | DIRSYNC
    | PROJINHERIT
    | CASEFOLD
    | DAX;
/// Flags that are meaningful on a regular file.
pub const REGULAR_MASK: u32 = !(DIRSYNC | TOPDIR | CASEFOLD | PROJINHERIT);
/// Flags that are meaningful on files that are neither regular nor directories.
pub const OTHER_MASK: u32 = NODUMP | NOATIME;
