//! Inodes: bytes to typed values and back, and the checksum.
//!
//! [`Inode`] has every field at full width. [`Inode::read`] reads the fields that an inode of this
//! size has; the others are 0. [`Inode::write`] changes only those fields, so attributes after them
//! and bytes that the format does not define stay. Call [`seal`] after the last change of the bytes
//! and [`verify`] before their first use.
//!
//! Source: ext4 disk layout documentation, "Inode Table", "Inode Size", "Inode Timestamps".

mod contents;
pub mod device;
mod file_type;
pub mod flags;
mod raw;

pub use contents::differ_in_contents;
pub use file_type::{FileType, mode};

use std::ops::Range;

use zerocopy::{FromBytes, IntoBytes};

use self::raw::{RawBase, RawExtra};
use crate::checksum::{csum, csum_u32};
use crate::error::{Corrupt, Structure};
use crate::superblock::creator;
use crate::{BlockNo, DiskTime, Geometry, Incompat, InodeNo, RoCompat};

/// Bytes of the fields that every inode has.
pub const BASE_SIZE: usize = 128;
/// Bytes after [`BASE_SIZE`] that this format defines. New inodes use them if they fit.
pub const EXTRA_SIZE: u16 = 32;
/// Bytes of an inode that hold its block map, a short symlink target, a device number, or the start
/// of its inline data.
pub const BLOCK_AREA: usize = 60;
/// Offset of these bytes in the inode.
pub const BLOCK_AREA_AT: usize = 0x28;

const CSUM_LO_AT: usize = 0x7C;
const CSUM_HI_AT: usize = 0x82;

/// An inode's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// File type and permissions.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Number of links; 1 for a directory with too many subdirectories to count.
    pub links: u16,
    /// The stored block count, 48 bits; see [`Inode::sectors`].
    pub blocks: u64,
    /// See [`flags`].
    pub flags: u32,
    /// A number that grows with each change. On a volume of the Hurd it is 0 and not stored.
    pub version: u64,
    /// The block map or its alternatives, see [`BLOCK_AREA`].
    pub block: [u8; BLOCK_AREA],
    /// Distinguishes successive files with the same inode number.
    pub generation: u32,
    /// The block of extended attributes, or 0.
    pub file_acl: BlockNo,
    /// The time of deletion; for an orphan in the list, the next orphan's number.
    pub dtime: u32,
    /// Last access.
    pub atime: DiskTime,
    /// Last change of the inode.
    pub ctime: DiskTime,
    /// Last change of the data.
    pub mtime: DiskTime,
    /// Creation, if the inode has space for it.
    pub crtime: DiskTime,
    /// Project, if the inode has space for it.
    pub project: u32,
    /// Bytes in use after [`BASE_SIZE`], before the attributes; 0 in inodes of 128 bytes.
    pub extra_isize: u16,
}

impl Default for Inode {
    fn default() -> Self {
        let never = DiskTime::default();
        Self {
            mode: 0,
            uid: 0,
            gid: 0,
            size: 0,
            links: 0,
            blocks: 0,
            flags: 0,
            version: 0,
            block: [0; BLOCK_AREA],
            generation: 0,
            file_acl: BlockNo(0),
            dtime: 0,
            atime: never,
            ctime: never,
            mtime: never,
            crtime: never,
            project: 0,
            extra_isize: 0,
        }
    }
}

/// Whether the field of [`RawExtra`] that ends at its byte `end` is in use.
fn fits(extra_isize: u16, end: u16) -> bool {
    extra_isize >= end
}

fn time(low: u32, extra: u32, wide: bool) -> DiskTime {
    if wide { DiskTime::from_words(low, extra) } else { DiskTime::from_word(low) }
}

/// The base of the inode and, if the inode is larger, the extra fields.
fn split<'a>(
    geometry: &Geometry,
    bytes: &'a [u8],
) -> Result<(&'a RawBase, Option<&'a RawExtra>), Corrupt> {
    let size = usize::from(geometry.inode_size);
    let Some(bytes) = bytes.get(..size) else {
        return Err(Corrupt::too_short(Structure::Inode, size, bytes.len()));
    };
    let (base, rest) = RawBase::ref_from_prefix(bytes)
        .map_err(|_| Corrupt::too_short(Structure::Inode, BASE_SIZE, bytes.len()))?;
    Ok((base, RawExtra::ref_from_prefix(rest).ok().map(|(extra, _)| extra)))
}

/// The checked `extra_isize`.
fn checked_extra_isize(geometry: &Geometry, extra: &RawExtra) -> Result<u16, Corrupt> {
    let size = extra.extra_isize.get();
    if !size.is_multiple_of(4) || usize::from(size) + BASE_SIZE > usize::from(geometry.inode_size) {
        return Err(Corrupt::field(Structure::Inode, "i_extra_isize", size));
    }
    Ok(size)
}

impl Inode {
    /// Parses the inode at the start of `bytes`.
    ///
    /// # Errors
    ///
    /// Fewer bytes than an inode has, or an extra size that does not fit into the inode. Values
    /// whose meaning depends on the file type are checked where they are used.
    pub fn read(geometry: &Geometry, bytes: &[u8]) -> Result<Self, Corrupt> {
        let (base, extra) = split(geometry, bytes)?;
        let extra_isize = extra.map_or(Ok(0), |extra| checked_extra_isize(geometry, extra))?;
        let none = RawExtra::default();
        let extra = extra.unwrap_or(&none);
        let features = &geometry.features;
        let mode = base.mode.get();
        let wide_size =
            FileType::of_mode(mode) == Some(FileType::Regular) || features.has(Incompat::LARGEDIR);
        let wide = |low: u32, high: u32, on: bool| {
            u64::from(low) | if on { u64::from(high) << 32 } else { 0 }
        };
        let pair = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
        let only = |end, value: u32| if fits(extra_isize, end) { value } else { 0 };
        let wide_acl = features.has(Incompat::BIT64) && !geometry.is_hurd();
        let acl_hi = u32::from(base.file_acl_hi.get());
        let created = fits(extra_isize, 20);
        Ok(Self {
            mode,
            uid: pair(base.uid_lo.get(), base.uid_hi.get()),
            gid: pair(base.gid_lo.get(), base.gid_hi.get()),
            size: wide(base.size_lo.get(), base.size_hi.get(), wide_size),
            links: base.links.get(),
            blocks: wide(
                base.blocks_lo.get(),
                u32::from(base.blocks_hi.get()),
                features.has(RoCompat::HUGE_FILE),
            ),
            flags: base.flags.get(),
            version: match geometry.is_hurd() {
                true => 0,
                false => wide(base.osd1.get(), only(28, extra.version_hi.get()), true),
            },
            block: base.block,
            generation: base.generation.get(),
            file_acl: BlockNo(wide(base.file_acl_lo.get(), acl_hi, wide_acl)),
            dtime: base.dtime.get(),
            atime: time(base.atime.get(), extra.atime_extra.get(), fits(extra_isize, 16)),
            ctime: time(base.ctime.get(), extra.ctime_extra.get(), fits(extra_isize, 8)),
            mtime: time(base.mtime.get(), extra.mtime_extra.get(), fits(extra_isize, 12)),
            crtime: if created {
                time(extra.crtime.get(), extra.crtime_extra.get(), fits(extra_isize, 24))
            } else {
                DiskTime::default()
            },
            project: only(32, extra.projid.get()),
            extra_isize,
        })
    }

    /// Writes the fields that this inode has to the start of `bytes`. The checksum and all bytes
    /// after the extra fields stay.
    ///
    /// # Panics
    ///
    /// If `bytes` is shorter than an inode, or [`Self::read`] would refuse `extra_isize`.
    pub fn write(&self, geometry: &Geometry, bytes: &mut [u8]) {
        let bytes = &mut bytes[..usize::from(geometry.inode_size)];
        let end = BASE_SIZE + usize::from(self.extra_isize);
        assert!(end <= bytes.len() && end.is_multiple_of(4), "the inode has room for its fields");
        let (base, rest) = RawBase::mut_from_prefix(bytes).expect("an inode has 128 bytes");
        self.write_base(base, geometry.is_hurd());
        if let Ok((old, _)) = RawExtra::mut_from_prefix(rest) {
            let mut extra = old.clone();
            self.write_extra(&mut extra);
            if geometry.is_hurd() {
                extra.version_hi = old.version_hi;
            }
            old.extra_isize = extra.extra_isize;
            let used = usize::from(self.extra_isize).min(size_of::<RawExtra>());
            if used > 4 {
                old.as_mut_bytes()[4..used].copy_from_slice(&extra.as_bytes()[4..used]);
            }
        }
    }

    fn write_base(&self, base: &mut RawBase, hurd: bool) {
        let wide = |end| fits(self.extra_isize, end);
        let low = |time: DiskTime, wide| if wide { time.to_words().0 } else { time.to_word() };
        base.mode.set(self.mode);
        base.uid_lo.set(self.uid as u16);
        base.uid_hi.set((self.uid >> 16) as u16);
        base.gid_lo.set(self.gid as u16);
        base.gid_hi.set((self.gid >> 16) as u16);
        base.size_lo.set(self.size as u32);
        base.size_hi.set((self.size >> 32) as u32);
        base.atime.set(low(self.atime, wide(16)));
        base.ctime.set(low(self.ctime, wide(8)));
        base.mtime.set(low(self.mtime, wide(12)));
        base.dtime.set(self.dtime);
        base.links.set(self.links);
        base.blocks_lo.set(self.blocks as u32);
        base.blocks_hi.set((self.blocks >> 32) as u16);
        base.flags.set(self.flags);
        base.block = self.block;
        base.generation.set(self.generation);
        base.file_acl_lo.set(self.file_acl.0 as u32);
        // The Hurd has a translator's block and the upper mode bits in these fields.
        if !hurd {
            base.osd1.set(self.version as u32);
            base.file_acl_hi.set((self.file_acl.0 >> 32) as u16);
        }
    }

    fn write_extra(&self, extra: &mut RawExtra) {
        extra.extra_isize.set(self.extra_isize);
        extra.ctime_extra.set(self.ctime.to_words().1);
        extra.mtime_extra.set(self.mtime.to_words().1);
        extra.atime_extra.set(self.atime.to_words().1);
        let (low, high) = self.crtime.to_words();
        extra.crtime.set(low);
        extra.crtime_extra.set(high);
        extra.version_hi.set((self.version >> 32) as u32);
        extra.projid.set(self.project);
    }

    /// The file type, or `None` for an invalid mode. An inode that is not in use has mode 0.
    #[must_use]
    pub fn file_type(&self) -> Option<FileType> {
        FileType::of_mode(self.mode)
    }

    /// Whether all of `flag` is set.
    #[must_use]
    pub fn has_flag(&self, flag: u32) -> bool {
        self.flags & flag == flag
    }

    /// Whether times have a second word, and thus nanoseconds and dates after 2038.
    #[must_use]
    pub fn has_wide_times(&self) -> bool {
        fits(self.extra_isize, 16)
    }

    /// Whether the inode stores its creation time.
    #[must_use]
    pub fn has_crtime(&self) -> bool {
        fits(self.extra_isize, 24)
    }

    /// Whether the inode stores a project.
    #[must_use]
    pub fn has_project(&self) -> bool {
        fits(self.extra_isize, 32)
    }

    /// The allocated space, in sectors of 512 bytes.
    #[must_use]
    pub fn sectors(&self, geometry: &Geometry) -> u64 {
        if geometry.features.has(RoCompat::HUGE_FILE) && self.has_flag(flags::HUGE_FILE) {
            // 48 bits shifted by at most 7 fit.
            self.blocks << (geometry.block_bits - 9)
        } else {
            self.blocks
        }
    }

    /// Stores the allocated space, in sectors. A count of more than 48 bits is stored in blocks.
    ///
    /// # Errors
    ///
    /// A count that the volume's features cannot store.
    pub fn set_sectors(&mut self, geometry: &Geometry, sectors: u64) -> Result<(), Corrupt> {
        let huge = geometry.features.has(RoCompat::HUGE_FILE);
        let limit = if huge { 1u64 << 48 } else { 1 << 32 };
        let blocks = sectors >> (geometry.block_bits - 9);
        if sectors < limit {
            self.flags &= !flags::HUGE_FILE;
            self.blocks = sectors;
        } else if huge && blocks < limit {
            self.flags |= flags::HUGE_FILE;
            self.blocks = blocks;
        } else {
            return Err(Corrupt::field(Structure::Inode, "i_blocks", sectors));
        }
        Ok(())
    }

    /// Whether the inode is a symbolic link with the target inside it: a link of less than 60 bytes
    /// that maps no block.
    #[must_use]
    pub fn is_fast_symlink(&self) -> bool {
        self.file_type() == Some(FileType::Symlink)
            && self.size < BLOCK_AREA as u64
            && !self.has_flag(flags::EXTENTS)
            && !self.has_flag(flags::INLINE_DATA)
    }

    /// The range of the inode's bytes that holds attributes; `None` if it has no space for them.
    #[must_use]
    pub fn xattr_area(&self, geometry: &Geometry) -> Option<Range<usize>> {
        let start = BASE_SIZE + usize::from(self.extra_isize);
        let end = usize::from(geometry.inode_size);
        // A zero extra size means that neither the extra fields nor the bytes after them were
        // initialized. The area starts with a magic number.
        (self.extra_isize != 0 && start + 8 <= end).then_some(start..end)
    }

    /// The seed of the checksums of this inode's own blocks: extent nodes, directory blocks.
    #[must_use]
    pub fn csum_seed(&self, geometry: &Geometry, ino: InodeNo) -> u32 {
        csum_seed(geometry, ino, self.generation)
    }
}

/// The seed of the checksums of an inode and its blocks.
#[must_use]
pub fn csum_seed(geometry: &Geometry, ino: InodeNo, generation: u32) -> u32 {
    csum_u32(csum_u32(geometry.csum_seed, ino.0), generation)
}

/// The hash of the value of an attribute that `inode` holds: the seconds of its access time.
#[must_use]
pub fn value_hash(inode: &Inode) -> u32 {
    inode.atime.to_words().0
}

/// Stores the hash of the value that the inode in `bytes` holds.
///
/// # Panics
///
/// If `bytes` is shorter than an inode.
pub fn set_value_hash(bytes: &mut [u8], hash: u32) {
    let (base, _) = RawBase::mut_from_prefix(bytes).expect("an inode has 128 bytes");
    base.atime.set(hash);
}

/// The translator's block of the inode in `bytes`, on a volume of the Hurd. A translator is a
/// program that serves the file; the block holds its name. 0 for none, and on all other volumes.
#[must_use]
pub fn translator(geometry: &Geometry, bytes: &[u8]) -> BlockNo {
    match split(geometry, bytes) {
        Ok((base, _)) if geometry.is_hurd() => BlockNo(base.osd1.get().into()),
        _ => BlockNo(0),
    }
}

/// Stores the translator's block, on a volume of the Hurd.
///
/// # Panics
///
/// On other volumes, or if `bytes` is shorter than an inode.
pub fn set_translator(geometry: &Geometry, bytes: &mut [u8], block: BlockNo) {
    assert!(geometry.is_hurd(), "only volumes of the Hurd have translators");
    let (base, _) = RawBase::mut_from_prefix(bytes).expect("an inode has 128 bytes");
    base.osd1.set(u32::try_from(block.0).expect("volumes of the Hurd have 32-bit block numbers"));
}

/// The stored and the computed checksum, both cut to the width that the inode stores.
fn both_sums(geometry: &Geometry, ino: InodeNo, bytes: &[u8]) -> Result<(u32, u32), Corrupt> {
    let (base, extra) = split(geometry, bytes)?;
    let bytes = &bytes[..usize::from(geometry.inode_size)];
    let high = extra.filter(|extra| fits(extra.extra_isize.get(), 4));
    let mut sum = csum_seed(geometry, ino, base.generation.get());
    sum = csum(csum(sum, &bytes[..CSUM_LO_AT]), &[0; 2]);
    if high.is_some() {
        sum = csum(sum, &bytes[CSUM_LO_AT + 2..CSUM_HI_AT]);
        sum = csum(csum(sum, &[0; 2]), &bytes[CSUM_HI_AT + 2..]);
    } else {
        sum = csum(sum, &bytes[CSUM_LO_AT + 2..]);
    }
    let low = u32::from(base.checksum_lo.get());
    Ok(match high {
        Some(extra) => (low | u32::from(extra.checksum_hi.get()) << 16, sum),
        None => (low, sum & 0xffff),
    })
}

/// Stores the checksum of the inode in `bytes` if the features require one.
///
/// # Panics
///
/// If `bytes` is shorter than an inode.
pub fn seal(geometry: &Geometry, ino: InodeNo, bytes: &mut [u8]) {
    if !geometry.features.metadata_csum() {
        return;
    }
    let (_, sum) = both_sums(geometry, ino, bytes).expect("callers pass a whole inode");
    let (base, rest) = RawBase::mut_from_prefix(bytes).expect("an inode has 128 bytes");
    base.checksum_lo.set(sum as u16);
    if usize::from(geometry.inode_size) > BASE_SIZE
        && let Ok((extra, _)) = RawExtra::mut_from_prefix(rest)
        && fits(extra.extra_isize.get(), 4)
    {
        extra.checksum_hi.set((sum >> 16) as u16);
    }
}

/// Compares the checksum of the inode in `bytes` if the features require one. Linux neither writes
/// nor compares it on volumes that another system made, so this function skips those volumes.
///
/// # Errors
///
/// A wrong checksum, or fewer bytes than an inode has.
pub fn verify(geometry: &Geometry, ino: InodeNo, bytes: &[u8]) -> Result<(), Corrupt> {
    match geometry.creator_os {
        creator::LINUX => verify_always(geometry, ino, bytes),
        _ => Ok(()),
    }
}

/// As [`verify`], also on volumes that another system made. e2fsck compares these.
///
/// # Errors
///
/// As [`verify`].
pub fn verify_always(geometry: &Geometry, ino: InodeNo, bytes: &[u8]) -> Result<(), Corrupt> {
    if !geometry.features.metadata_csum() {
        return Ok(());
    }
    let (found, expected) = both_sums(geometry, ino, bytes).map_err(|e| e.at_inode(ino))?;
    if found != expected {
        return Err(Corrupt::checksum(Structure::Inode, found, expected).at_inode(ino));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
