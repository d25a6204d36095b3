//! Directory entries: a block is a chain of records that fills it without gaps.
//!
//! Readers use [`Entries`], which checks each record against the bytes that hold it. With
//! `metadata_csum`, a block of entries ends with 12 bytes that look like an unused entry and hold
//! the checksum; [`entries`] omits them. Blocks of a hash index ([`crate::htree`]) look like blocks
//! with few entries to a reader that does not know the index.
//!
//! Source: ext4 disk layout documentation, "Linear (Classic) Directories".

mod edit;

pub use edit::{
    NewEntry, find, init_dots, init_leaf, insert, pack, remove, renumber, renumber_inline, retarget,
};

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::csum;
use crate::error::{Corrupt, Structure};
use crate::{BlockNo, FileType, Geometry, Incompat, InodeNo};

/// Bytes of an entry before its name.
pub const HEADER: usize = 8;
/// Bytes of the longest name.
pub const MAX_NAME: usize = 255;
/// Bytes at the end of a block that hold the checksum.
pub const TAIL: usize = 12;
/// Bytes of the smallest record.
pub const MIN_RECORD: usize = 12;
const TAIL_TYPE: u8 = 0xDE;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Raw {
    pub(crate) ino: U32,
    pub(crate) rec_len: U16,
    pub(crate) name_len: u8,
    pub(crate) file_type: u8,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTail {
    zero: U32,
    rec_len: U16,
    name_len: u8,
    file_type: u8,
    checksum: U32,
}

/// Bytes of a record for a name of `len` bytes, with header and padding.
#[must_use]
pub const fn record_len(len: usize) -> usize {
    (HEADER + len + 3) & !3
}

/// Decodes a stored record length. In blocks of 64 KiB, lengths that need more than 16 bits use the
/// two low bits, which are 0 otherwise.
pub(crate) fn decode_len(geometry: &Geometry, raw: u16) -> usize {
    match raw {
        _ if geometry.block_size < 65536 => usize::from(raw),
        0 | 0xffff => 65536,
        raw => usize::from(raw & 0xfffc) | usize::from(raw & 3) << 16,
    }
}

/// Encodes a record length.
pub(crate) fn encode_len(geometry: &Geometry, len: usize) -> u16 {
    debug_assert!(len.is_multiple_of(4) && len <= geometry.block_len());
    if len < 65536 { len as u16 } else { 0xffff }
}

/// One record of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// Offset of the record, in bytes.
    pub offset: usize,
    /// Bytes of the record, up to the next one.
    pub rec_len: usize,
    /// The inode, or 0 if the record is unused.
    pub ino: InodeNo,
    /// The file type's code; 0 if unknown.
    pub type_code: u8,
    /// The name.
    pub name: &'a [u8],
}

impl DirEntry<'_> {
    /// Whether the record names an inode.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.ino.0 != 0
    }

    /// The file type, if the entry has one.
    #[must_use]
    pub fn file_type(&self) -> Option<FileType> {
        FileType::of_entry(self.type_code)
    }

    /// Whether this is `.` or `..`.
    #[must_use]
    pub fn is_dot(&self) -> bool {
        matches!(self.name, b"." | b"..")
    }

    /// Whether the name can be shown unchanged. An encrypted name can hold any byte; in another
    /// name a slash or a zero byte is damage.
    #[must_use]
    pub fn has_plain_name(&self) -> bool {
        !self.name.is_empty() && !self.name.iter().any(|byte| matches!(byte, b'/' | 0))
    }

    /// Bytes of the record that the entry does not need.
    #[must_use]
    pub fn spare(&self) -> usize {
        let needed = if self.is_used() { record_len(self.name.len()) } else { 0 };
        self.rec_len.saturating_sub(needed)
    }
}

/// The checked records of a block. The iterator ends after the first error.
#[derive(Clone)]
pub struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
    geometry: &'a Geometry,
    typed: bool,
}

impl<'a> Entries<'a> {
    /// The records in exactly `bytes`: part of a block, or a directory's inline data.
    #[must_use]
    pub fn over(geometry: &'a Geometry, bytes: &'a [u8]) -> Self {
        let typed = geometry.features.has(Incompat::FILETYPE);
        Self { bytes, at: 0, geometry, typed }
    }

    /// The same records from the one at `offset` on. A record must start there.
    #[must_use]
    pub fn from(mut self, offset: usize) -> Self {
        self.at = offset.min(self.bytes.len());
        self
    }

    #[inline]
    fn step(&mut self) -> Result<DirEntry<'a>, Corrupt> {
        let left = &self.bytes[self.at..];
        let Ok((raw, rest)) = Raw::ref_from_prefix(left) else {
            return bad("bytes left for an entry", left.len());
        };
        let rec_len = decode_len(self.geometry, raw.rec_len.get());
        let name_len = usize::from(raw.name_len);
        if !rec_len.is_multiple_of(4) || rec_len < MIN_RECORD || rec_len > left.len() {
            return bad("rec_len", rec_len);
        }
        let after = left.len() - rec_len;
        if after != 0 && after < MIN_RECORD {
            return bad("rec_len (too close to the end)", rec_len);
        }
        let ino = InodeNo(raw.ino.get());
        if record_len(name_len) > rec_len || (name_len == 0 && ino.0 != 0) {
            return bad("name_len", name_len);
        }
        if ino.0 > self.geometry.inodes_count {
            return bad("inode of an entry", ino.0 as usize);
        }
        let entry = DirEntry {
            offset: self.at,
            rec_len,
            ino,
            type_code: if self.typed { raw.file_type } else { 0 },
            name: &rest[..name_len],
        };
        self.at += rec_len;
        Ok(entry)
    }
}

#[cold]
fn bad<T>(name: &'static str, value: usize) -> Result<T, Corrupt> {
    Err(Corrupt::field(Structure::Directory, name, value as u64))
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<DirEntry<'a>, Corrupt>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let entry = self.step();
        if entry.is_err() {
            self.at = self.bytes.len();
        }
        Some(entry)
    }
}

fn tail(bytes: &[u8]) -> Option<&RawTail> {
    let (_, tail) = RawTail::ref_from_suffix(bytes).ok()?;
    let fits = tail.zero.get() == 0
        && usize::from(tail.rec_len.get()) == TAIL
        && tail.name_len == 0
        && tail.file_type == TAIL_TYPE
        && !hides_index(bytes);
    fits.then_some(tail)
}

/// Whether a block ends with the checksum record of a block of entries.
///
/// The record's bytes are not sufficient: Linux leaves them in place when it turns a block into the
/// root of an index. But the records of an index block extend to the block's end.
#[must_use]
pub fn has_tail(block: &[u8]) -> bool {
    tail(block).is_some()
}

/// Whether the records of `block` are those of a node or the root of an index.
fn hides_index(block: &[u8]) -> bool {
    let record = |at: usize| Raw::ref_from_prefix(block.get(at..)?).ok().map(|(raw, _)| raw);
    let reaches_end = |at: usize, raw: &Raw| match usize::from(raw.rec_len.get()) {
        0 | 0xffff if block.len() > 0xffff => at == 0,
        len => at + len == block.len(),
    };
    match record(0) {
        Some(raw) if raw.rec_len.get() == MIN_RECORD as u16 => {
            record(MIN_RECORD).is_some_and(|raw| reaches_end(MIN_RECORD, raw))
        }
        Some(raw) => reaches_end(0, raw),
        None => false,
    }
}

/// Bytes of a block of entries that hold entries: all but the checksum, if there is one.
#[must_use]
pub fn leaf_len(geometry: &Geometry) -> usize {
    geometry.block_len() - if geometry.features.metadata_csum() { TAIL } else { 0 }
}

/// Bytes of this block that hold records. A block of an index has no checksum record.
pub(crate) fn body_len(geometry: &Geometry, block: &[u8]) -> usize {
    if geometry.features.metadata_csum() && tail(block).is_some() {
        block.len() - TAIL
    } else {
        block.len()
    }
}

/// The parent's inode number, at the start of a directory's inline data.
#[must_use]
pub fn inline_parent(area: &[u8]) -> Option<InodeNo> {
    U32::ref_from_prefix(area).ok().map(|(ino, _)| InodeNo(ino.get()))
}

/// Stores the parent's inode number at the start of a directory's inline data.
pub fn set_inline_parent(area: &mut [u8], parent: InodeNo) {
    if let Ok((ino, _)) = U32::mut_from_prefix(area) {
        ino.set(parent.0);
    }
}

/// The records of any directory block. An index root shows `.` and `..`; another index node shows
/// one unused record.
#[must_use]
pub fn entries<'a>(geometry: &'a Geometry, block: &'a [u8]) -> Entries<'a> {
    Entries::over(geometry, &block[..body_len(geometry, block)])
}

/// Checks every record of a block of entries, so that later iterations cannot fail.
///
/// # Errors
///
/// The first record that breaks a rule.
pub fn check(geometry: &Geometry, block: &[u8]) -> Result<(), Corrupt> {
    entries(geometry, block).try_for_each(|entry| entry.map(drop))
}

/// Stores the checksum of a block of entries. `seed` is the directory inode's. A block without a
/// checksum record stays unchanged.
pub fn seal(seed: u32, _no: BlockNo, block: &mut [u8]) {
    if tail(block).is_none() {
        return;
    }
    let body = block.len() - TAIL;
    let sum = csum(seed, &block[..body]);
    if let Ok((_, tail)) = RawTail::mut_from_suffix(block) {
        tail.checksum.set(sum);
    }
}

/// Compares the checksum of a block of entries. Call it only with the feature `metadata_csum`.
///
/// # Errors
///
/// The checksum record is missing, or the checksum is wrong.
pub fn verify(seed: u32, block: &[u8]) -> Result<(), Corrupt> {
    let Some(tail) = tail(block) else {
        return Err(Corrupt::rule(Structure::Directory, "no checksum record at the end"));
    };
    let (found, expected) = (tail.checksum.get(), csum(seed, &block[..block.len() - TAIL]));
    if found != expected {
        return Err(Corrupt::checksum(Structure::Directory, found, expected));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
