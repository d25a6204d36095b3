//! The fields of an inode, as stored.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first 128 bytes, which every inode has.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawBase {
    pub(super) mode: U16,
    pub(super) uid_lo: U16,
    pub(super) size_lo: U32,
    pub(super) atime: U32,
    pub(super) ctime: U32,
    pub(super) mtime: U32,
    pub(super) dtime: U32,
    pub(super) gid_lo: U16,
    pub(super) links: U16,
    pub(super) blocks_lo: U32,
    pub(super) flags: U32,
    /// The low half of the version, or a translator's block (Hurd).
    pub(super) osd1: U32,
    pub(super) block: [u8; 60],
    pub(super) generation: U32,
    pub(super) file_acl_lo: U32,
    pub(super) size_hi: U32,
    pub(super) obsolete_faddr: U32,
    pub(super) blocks_hi: U16,
    pub(super) file_acl_hi: U16,
    pub(super) uid_hi: U16,
    pub(super) gid_hi: U16,
    pub(super) checksum_lo: U16,
    pub(super) reserved: U16,
}

/// The fields after the first 128 bytes. `extra_isize` says how many of them are in use.
#[derive(Clone, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawExtra {
    pub(super) extra_isize: U16,
    pub(super) checksum_hi: U16,
    pub(super) ctime_extra: U32,
    pub(super) mtime_extra: U32,
    pub(super) atime_extra: U32,
    pub(super) crtime: U32,
    pub(super) crtime_extra: U32,
    pub(super) version_hi: U32,
    pub(super) projid: U32,
}

const _: () = assert!(size_of::<RawBase>() == 128 && size_of::<RawExtra>() == 32);
