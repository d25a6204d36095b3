//! The bits of an inode's flags.
//!
//! Source: ext4 disk layout documentation, "Inode Table", `i_flags`.

/// Secure deletion; not implemented anywhere.
pub const SECRM: u32 = 0x1;
/// Undeletable; not implemented anywhere.
pub const UNRM: u32 = 0x2;
/// Compressed; not implemented anywhere.
pub const COMPR: u32 = 0x4;
/// All writes are synchronous.
pub const SYNC: u32 = 0x8;
/// Immutable.
pub const IMMUTABLE: u32 = 0x10;
/// Append only.
pub const APPEND: u32 = 0x20;
/// `dump` leaves it out.
pub const NODUMP: u32 = 0x40;
/// Access times are not kept.
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
/// Data goes through the journal.
pub const JOURNAL_DATA: u32 = 0x4000;
/// Tails are not merged; unused.
pub const NOTAIL: u32 = 0x8000;
/// Directory changes are synchronous.
pub const DIRSYNC: u32 = 0x10000;
/// Top of directory hierarchies, for placement.
pub const TOPDIR: u32 = 0x20000;
/// The block count is in file system blocks.
pub const HUGE_FILE: u32 = 0x40000;
/// The block map is an extent tree.
pub const EXTENTS: u32 = 0x80000;
/// Protected by a Merkle tree.
pub const VERITY: u32 = 0x10_0000;
/// Holds the value of an extended attribute.
pub const EA_INODE: u32 = 0x20_0000;
/// Blocks past the end; obsolete.
pub const EOFBLOCKS: u32 = 0x40_0000;
/// Direct access.
pub const DAX: u32 = 0x200_0000;
/// Data lies in the inode.
pub const INLINE_DATA: u32 = 0x1000_0000;
/// New files inherit the project.
pub const PROJINHERIT: u32 = 0x2000_0000;
/// A directory that ignores case.
pub const CASEFOLD: u32 = 0x4000_0000;
/// Reserved for the library.
pub const RESERVED: u32 = 0x8000_0000;

/// What the interfaces for flags show.
pub const USER_VISIBLE: u32 = 0x725B_DFFF;
/// What they may change.
pub const USER_MODIFIABLE: u32 = 0x624B_C0FF;
/// What a new file takes from its directory.
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
/// What makes sense on a regular file.
pub const REGULAR_MASK: u32 = !(DIRSYNC | TOPDIR | CASEFOLD | PROJINHERIT);
/// What makes sense on neither regular files nor directories.
pub const OTHER_MASK: u32 = NODUMP | NOATIME;
