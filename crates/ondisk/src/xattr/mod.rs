//! Extended attributes: a list of names, and their values packed from the other end.
//!
//! One list may be in the inode after its fields, another one in a block, which files with equal
//! attributes share. [`in_inode`] and [`in_block`] check a whole list, so the [`Entries`] that they
//! return cannot fail. [`write_inode`] and [`write_block`] encode a new list. In place only hashes
//! change, and the numbers of inodes that hold values.
//!
//! Source: ext4 disk layout documentation, "Extended Attributes".

mod encode;
mod names;
mod value_inode;

pub use encode::{space_for, write_block, write_inode};
pub use names::{full_name, index, split_name};
pub use value_inode::{renumber_in_block, renumber_in_inode};

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{csum, csum_u64, csum_without};
use crate::error::{Corrupt, Structure};
use crate::{BlockNo, Geometry, Incompat, InodeNo};

/// The magic number of both headers.
pub const MAGIC: u32 = 0xEA02_0000;
/// Bytes before the entries in an inode.
pub const INODE_HEADER: usize = 4;
/// Bytes before the entries in a block.
pub const BLOCK_HEADER: usize = 32;
/// Bytes of an entry before its name.
pub const ENTRY_HEADER: usize = 16;
/// Bytes of the end mark of a list.
pub const LIST_END: usize = 4;
/// The most inodes that may share a block.
pub const MAX_REFCOUNT: u32 = 1024;
/// Bytes of the longest name, without its prefix.
pub const MAX_NAME: usize = 255;
/// Bytes of the largest value, which is in an inode of its own.
pub const MAX_VALUE: usize = 65536;
/// Bytes of the largest value that a parser accepts.
const MAX_STORED_VALUE: u32 = 1 << 24;
const CSUM_AT: usize = 0x10;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    name_len: u8,
    name_index: u8,
    value_offset: U16,
    value_ino: U32,
    value_size: U32,
    hash: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    refcount: U32,
    blocks: U32,
    hash: U32,
    checksum: U32,
    reserved: [U32; 3],
}

const _: () = {
    assert!(size_of::<RawEntry>() == ENTRY_HEADER);
    assert!(size_of::<RawHeader>() == BLOCK_HEADER);
};

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The inodes that share the block.
    pub refcount: u32,
    /// The hash of all entries; 0 for a block that must not be shared.
    pub hash: u32,
}

/// The location of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// In the list's area: the value.
    Bytes(&'a [u8]),
    /// In an inode of its own, with this many bytes.
    Inode(InodeNo, u32),
}

/// One attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XattrEntry<'a> {
    /// The number of the name's prefix, see [`index`].
    pub index: u8,
    /// The name after the prefix.
    pub name: &'a [u8],
    /// The value.
    pub value: Value<'a>,
    /// The hash of name and value; 0 if none is stored.
    pub hash: u32,
}

/// Bytes of a value with padding.
#[must_use]
pub const fn padded(len: usize) -> usize {
    (len + 3) & !3
}

/// Bytes of an entry with a name of `len` bytes.
#[must_use]
pub const fn entry_len(len: usize) -> usize {
    padded(ENTRY_HEADER + len)
}

fn bad<T>(name: &'static str, value: impl Into<u64>) -> Result<T, Corrupt> {
    Err(Corrupt::field(Structure::Xattr, name, value))
}

/// A checked list.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    /// The area from the first entry on.
    list: &'a [u8],
    /// The area that value offsets count from.
    values: &'a [u8],
}

impl<'a> Entries<'a> {
    const EMPTY: Self = Self { list: &[], values: &[] };

    /// The first entry, its name and the rest; `None` at the end of the list.
    fn split(&self) -> Option<(&'a RawEntry, &'a [u8], &'a [u8])> {
        let (raw, rest) = RawEntry::ref_from_prefix(self.list).ok()?;
        let len = usize::from(raw.name_len);
        let name = rest.get(..len)?;
        Some((raw, name, self.list.get(entry_len(len)..)?))
    }

    /// Checks the list that starts at `at` in `area`.
    fn check(geometry: &Geometry, area: &'a [u8], at: usize, base: usize) -> Result<Self, Corrupt> {
        let values = &area[base..];
        let mut rest = Self { list: &area[at..], values };
        let first = rest.list;
        loop {
            match rest.list.first_chunk::<LIST_END>() {
                Some([0, 0, 0, 0]) => break,
                Some(_) => {}
                None => return Err(Corrupt::rule(Structure::Xattr, "the list has no end mark")),
            }
            let Some((raw, name, next)) = rest.split() else {
                return bad("e_name_len", rest.list[0]);
            };
            if name.contains(&0) {
                return Err(Corrupt::rule(Structure::Xattr, "a name has a zero byte"));
            }
            check_foreign(geometry, raw)?;
            rest.list = next;
        }
        let len = first.len() - rest.list.len();
        let entries = Self { list: &first[..len], values };
        entries.check_values(at - base + len + LIST_END)?;
        Ok(entries)
    }

    /// Checks that values lie between the list's end and the area's end.
    fn check_values(&self, from: usize) -> Result<(), Corrupt> {
        let mut rest = self.clone();
        while let Some((raw, _, next)) = rest.split() {
            let size = raw.value_size.get();
            if raw.value_ino.get() == 0 && size > 0 {
                let start = usize::from(raw.value_offset.get());
                let end = start as u64 + u64::from(size).next_multiple_of(4);
                if start < from || end > self.values.len() as u64 {
                    return bad("e_value_offs", start as u64);
                }
            }
            rest.list = next;
        }
        Ok(())
    }

    /// The attribute with this prefix and name.
    #[must_use]
    pub fn find(&self, index: u8, name: &[u8]) -> Option<XattrEntry<'a>> {
        let same = |entry: &XattrEntry<'_>| entry.index == index && entry.name == name;
        Iterator::find(&mut self.clone(), same)
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// Checks an entry whose value is in an inode of its own.
fn check_foreign(geometry: &Geometry, raw: &RawEntry) -> Result<(), Corrupt> {
    let ino = raw.value_ino.get();
    if ino == 0 {
        return Ok(());
    }
    if !geometry.features.has(Incompat::EA_INODE) || ino > geometry.inodes_count {
        return bad("e_value_inum", ino);
    }
    if raw.value_size.get() > MAX_STORED_VALUE {
        return bad("e_value_size", raw.value_size.get());
    }
    Ok(())
}

impl<'a> Iterator for Entries<'a> {
    type Item = XattrEntry<'a>;

    fn next(&mut self) -> Option<XattrEntry<'a>> {
        let (raw, name, rest) = self.split()?;
        let (start, size) = (usize::from(raw.value_offset.get()), raw.value_size.get());
        let value = match raw.value_ino.get() {
            0 if size == 0 => Value::Bytes(&[]),
            0 => Value::Bytes(self.values.get(start..start + size as usize)?),
            ino => Value::Inode(InodeNo(ino), size),
        };
        self.list = rest;
        Some(XattrEntry { index: raw.name_index, name, value, hash: raw.hash.get() })
    }
}

/// The attributes in an inode. `area` is [`crate::Inode::xattr_area`]; without the magic number the
/// list is empty.
///
/// # Errors
///
/// The first rule that an entry breaks.
pub fn in_inode<'a>(geometry: &Geometry, area: &'a [u8]) -> Result<Entries<'a>, Corrupt> {
    match U32::ref_from_prefix(area) {
        Ok((magic, _)) if magic.get() == MAGIC => {
            Entries::check(geometry, area, INODE_HEADER, INODE_HEADER)
        }
        _ => Ok(Entries::EMPTY),
    }
}

/// The attributes in a block.
///
/// # Errors
///
/// No magic number, no reference, or the first rule that an entry breaks. [`verify`] checks the
/// checksum.
pub fn in_block<'a>(
    geometry: &Geometry,
    block: &'a [u8],
) -> Result<(Header, Entries<'a>), Corrupt> {
    let (raw, _) = RawHeader::ref_from_prefix(block)
        .map_err(|_| Corrupt::too_short(Structure::Xattr, BLOCK_HEADER, block.len()))?;
    if raw.magic.get() != MAGIC {
        return Err(Corrupt::magic(Structure::Xattr, raw.magic.get()));
    }
    if raw.blocks.get() != 1 {
        return bad("h_blocks", raw.blocks.get());
    }
    if raw.refcount.get() == 0 {
        return bad("h_refcount", 0u32);
    }
    let header = Header { refcount: raw.refcount.get(), hash: raw.hash.get() };
    Ok((header, Entries::check(geometry, block, BLOCK_HEADER, 0)?))
}

/// Changes the number of inodes that share a block. A block without a header stays unchanged.
pub fn set_refcount(block: &mut [u8], refcount: u32) {
    if let Ok((raw, _)) = RawHeader::mut_from_prefix(block) {
        raw.refcount.set(refcount);
    }
}

/// Changes the hashes of the entries with these numbers, in order, and the hash of all entries of a
/// block. `area` is checked; see [`in_inode`] and [`in_block`].
pub fn set_hashes(area: &mut [u8], is_inode: bool, new: &[(usize, u32)]) {
    let mut rest = match (is_inode, new) {
        (_, []) => return,
        (true, _) => &mut area[INODE_HEADER..],
        (false, _) => &mut area[BLOCK_HEADER..],
    };
    let (mut all, mut at) = (Vec::new(), 0);
    while rest.first_chunk() != Some(&[0; LIST_END])
        && let Ok((raw, _)) = RawEntry::mut_from_prefix(rest)
    {
        if let Some((_, hash)) = new.iter().find(|(changed, _)| *changed == at) {
            raw.hash.set(*hash);
        }
        all.push(raw.hash.get());
        let len = entry_len(usize::from(raw.name_len));
        rest = rest.get_mut(len..).unwrap_or_default();
        at += 1;
    }
    if !is_inode
        && let Ok((raw, _)) = RawHeader::mut_from_prefix(area)
        && raw.hash.get() != 0
    {
        raw.hash.set(block_hash(all));
    }
}

/// The hash of an entry whose value is in the list's area.
#[must_use]
pub fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    value.chunks(4).fold(name_hash(name), |hash, chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        fold_word(hash, u32::from_le_bytes(word))
    })
}

/// The hash of an entry whose value is an inode with this [`value_hash`].
#[must_use]
pub fn foreign_entry_hash(name: &[u8], value_hash: u32) -> u32 {
    fold_word(name_hash(name), value_hash)
}

/// The hash of a value in an inode of its own, stored there as the seconds of the access time.
#[must_use]
pub fn value_hash(geometry: &Geometry, value: &[u8]) -> u32 {
    csum(geometry.csum_seed, value)
}

/// [`entry_hash`] as computed by kernels that treat the bytes of a name as signed.
#[must_use]
pub fn signed_entry_hash(name: &[u8], value: &[u8]) -> u32 {
    entry_hash(name, value) ^ sign_bits(name, value.len().div_ceil(4))
}

/// [`foreign_entry_hash`] as computed by kernels that treat the bytes of a name as signed.
#[must_use]
pub fn signed_foreign_entry_hash(name: &[u8], value_hash: u32) -> u32 {
    foreign_entry_hash(name, value_hash) ^ sign_bits(name, 1)
}

/// The bits that the sign bits of a name's bytes flip in the hash of an entry with `words` words of
/// value. The hash consists of rotations and xor only, so these bits depend on nothing else.
fn sign_bits(name: &[u8], words: usize) -> u32 {
    let sign = |byte: u8| if byte < 0x80 { 0 } else { 0xffff_ff00 };
    let flips = name.iter().fold(0u32, |hash, &byte| hash.rotate_left(5) ^ sign(byte));
    if words.is_multiple_of(2) { flips } else { flips.rotate_left(16) }
}

fn name_hash(name: &[u8]) -> u32 {
    name.iter().fold(0u32, |hash, &byte| hash.rotate_left(5) ^ u32::from(byte))
}

fn fold_word(hash: u32, word: u32) -> u32 {
    hash.rotate_left(16) ^ word
}

/// The hash of all entries of a block; 0 if one of them has none.
#[must_use]
pub fn block_hash(hashes: impl IntoIterator<Item = u32>) -> u32 {
    let mut hash = 0;
    for entry in hashes {
        if entry == 0 {
            return 0;
        }
        hash = fold_word(hash, entry);
    }
    hash
}

fn checksum(seed: u32, no: BlockNo, block: &[u8]) -> u32 {
    csum_without(csum_u64(seed, no.0), block, CSUM_AT, 4)
}

/// Stores the checksum of block `no` of attributes. `seed` is the volume's.
pub fn seal(seed: u32, no: BlockNo, block: &mut [u8]) {
    let sum = checksum(seed, no, block);
    if let Ok((raw, _)) = RawHeader::mut_from_prefix(block) {
        raw.checksum.set(sum);
    }
}

/// Compares the checksum of block `no` of attributes. Call it only with the feature
/// `metadata_csum`.
///
/// # Errors
///
/// A wrong checksum.
pub fn verify(seed: u32, no: BlockNo, block: &[u8]) -> Result<(), Corrupt> {
    let (raw, _) = RawHeader::ref_from_prefix(block)
        .map_err(|_| Corrupt::too_short(Structure::Xattr, BLOCK_HEADER, block.len()))?;
    let (found, expected) = (raw.checksum.get(), checksum(seed, no, block));
    if found != expected {
        return Err(Corrupt::checksum(Structure::Xattr, found, expected).at_block(no));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
