//! Changes to the entries of one block.
//!
//! [`find`], [`insert`] and [`remove`] iterate over checked records, so damage is an error and
//! never a write outside a record.

use zerocopy::{FromBytes, IntoBytes};

use super::{
    DirEntry, Entries, MAX_NAME, MIN_RECORD, Raw, RawTail, TAIL, TAIL_TYPE, body_len, encode_len,
    entries, leaf_len, record_len,
};
use crate::error::Corrupt;
use crate::{FileType, Geometry, Incompat, InodeNo};

/// An entry to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewEntry<'a> {
    /// The entry's inode.
    pub ino: InodeNo,
    /// The file type's code, see [`FileType::entry_code`]. Without the feature `filetype`, 0 is
    /// stored.
    pub type_code: u8,
    /// The name, 1 to 255 bytes.
    pub name: &'a [u8],
}

impl<'a> NewEntry<'a> {
    /// An entry that names `ino`.
    #[must_use]
    pub fn new(ino: InodeNo, file_type: FileType, name: &'a [u8]) -> Self {
        Self { ino, type_code: file_type.entry_code(), name }
    }
}

impl<'a> From<DirEntry<'a>> for NewEntry<'a> {
    fn from(entry: DirEntry<'a>) -> Self {
        Self { ino: entry.ino, type_code: entry.type_code, name: entry.name }
    }
}

fn code(geometry: &Geometry, code: u8) -> u8 {
    if geometry.features.has(Incompat::FILETYPE) { code } else { 0 }
}

/// Writes a record at `offset`.
fn put(geometry: &Geometry, bytes: &mut [u8], offset: usize, rec_len: usize, slot: &NewEntry<'_>) {
    debug_assert!(slot.name.len() <= MAX_NAME && record_len(slot.name.len()) <= rec_len);
    let raw = Raw {
        ino: slot.ino.0.into(),
        rec_len: encode_len(geometry, rec_len).into(),
        name_len: slot.name.len() as u8,
        file_type: code(geometry, slot.type_code),
    };
    let record = &mut bytes[offset..offset + rec_len];
    let (head, rest) = record.split_at_mut(super::HEADER);
    head.copy_from_slice(raw.as_bytes());
    let (name, pad) = rest.split_at_mut(slot.name.len());
    name.copy_from_slice(slot.name);
    let pad_len = record_len(slot.name.len()) - super::HEADER - slot.name.len();
    pad[..pad_len].fill(0);
}

fn raw_at(bytes: &mut [u8], offset: usize) -> &mut Raw {
    Raw::mut_from_prefix(&mut bytes[offset..]).expect("a checked record starts here").0
}

fn put_tail(geometry: &Geometry, block: &mut [u8]) {
    if !geometry.features.metadata_csum() {
        return;
    }
    let tail = RawTail {
        zero: 0.into(),
        rec_len: (TAIL as u16).into(),
        name_len: 0,
        file_type: TAIL_TYPE,
        checksum: 0.into(),
    };
    let at = block.len() - TAIL;
    block[at..].copy_from_slice(tail.as_bytes());
}

const UNUSED: NewEntry<'static> = NewEntry { ino: InodeNo(0), type_code: 0, name: b"" };

/// Makes `block` a block without entries. With `metadata_csum` it has a checksum record, which
/// [`seal`](super::seal) fills.
///
/// # Panics
///
/// If the length is not the block size.
pub fn init_leaf(geometry: &Geometry, block: &mut [u8]) {
    assert_eq!(block.len(), geometry.block_len(), "a whole block is initialized");
    block.fill(0);
    put(geometry, block, 0, leaf_len(geometry), &UNUSED);
    put_tail(geometry, block);
}

/// Makes `block` the first block of a directory, with `.` and `..`.
///
/// # Panics
///
/// If the length is not the block size.
pub fn init_dots(geometry: &Geometry, block: &mut [u8], own: InodeNo, parent: InodeNo) {
    init_leaf(geometry, block);
    let rest = leaf_len(geometry) - MIN_RECORD;
    put(geometry, block, 0, MIN_RECORD, &NewEntry::new(own, FileType::Directory, b"."));
    put(geometry, block, MIN_RECORD, rest, &NewEntry::new(parent, FileType::Directory, b".."));
}

/// Makes `block` a block of exactly these entries, without gaps. Returns `false` if they do not
/// fit; the block's contents are then unspecified.
///
/// # Panics
///
/// If the length is not the block size.
pub fn pack<'a>(
    geometry: &Geometry,
    block: &mut [u8],
    slots: impl IntoIterator<Item = NewEntry<'a>>,
) -> bool {
    init_leaf(geometry, block);
    let end = leaf_len(geometry);
    let (mut at, mut last) = (0, None);
    for slot in slots {
        let len = record_len(slot.name.len());
        if at + len > end {
            return false;
        }
        put(geometry, block, at, len, &slot);
        last = Some(at);
        at += len;
    }
    if let Some(last) = last {
        raw_at(block, last).rec_len.set(encode_len(geometry, end - last));
    }
    true
}

/// The entry with exactly this name.
///
/// # Errors
///
/// An earlier record that breaks a rule.
pub fn find<'a>(
    geometry: &'a Geometry,
    block: &'a [u8],
    name: &[u8],
) -> Result<Option<DirEntry<'a>>, Corrupt> {
    for entry in entries(geometry, block) {
        let entry = entry?;
        if entry.is_used() && entry.name == name {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// Inserts an entry into the first record with enough space and returns its offset, or `None` if
/// there is no space. It does not check for an entry of the same name.
///
/// # Errors
///
/// An earlier record that breaks a rule.
///
/// # Panics
///
/// If the name is empty or longer than 255 bytes.
pub fn insert(
    geometry: &Geometry,
    block: &mut [u8],
    slot: &NewEntry<'_>,
) -> Result<Option<usize>, Corrupt> {
    assert!((1..=MAX_NAME).contains(&slot.name.len()), "names have 1 to 255 bytes");
    let need = record_len(slot.name.len());
    let mut place = None;
    for entry in entries(geometry, block) {
        let entry = entry?;
        if entry.spare() >= need {
            place = Some((entry.offset, entry.rec_len, entry.rec_len - entry.spare()));
            break;
        }
    }
    let Some((offset, rec_len, used)) = place else { return Ok(None) };
    if used > 0 {
        raw_at(block, offset).rec_len.set(encode_len(geometry, used));
    }
    put(geometry, block, offset + used, rec_len - used, slot);
    Ok(Some(offset + used))
}

/// Removes the entry at `offset`. Its record joins the previous one, or becomes unused if it is the
/// first.
///
/// # Errors
///
/// A record that breaks a rule, or no used record at `offset`.
pub fn remove(geometry: &Geometry, block: &mut [u8], offset: usize) -> Result<(), Corrupt> {
    let body = body_len(geometry, block);
    let (mut before, mut found) = (None, None);
    for entry in Entries::over(geometry, &block[..body]) {
        let entry = entry?;
        if entry.offset == offset {
            let used = record_len(entry.name.len());
            found = Some((entry.rec_len, used, entry.is_used()));
            break;
        }
        before = Some((entry.offset, entry.rec_len));
    }
    let Some((rec_len, used, true)) = found else {
        let at = offset as u64;
        return Err(Corrupt::field(crate::Structure::Directory, "offset of an entry", at));
    };
    match before {
        Some((at, len)) => {
            // The bytes after the name are zero already: never used, or cleared at an earlier
            // removal.
            block[offset..offset + used].fill(0);
            raw_at(block, at).rec_len.set(encode_len(geometry, len + rec_len));
        }
        None => {
            block[offset + super::HEADER..offset + used].fill(0);
            put(geometry, block, offset, rec_len, &UNUSED);
        }
    }
    Ok(())
}

/// Changes the inode and type of the entry at `offset`, which must come from [`find`] on the same
/// bytes.
///
/// # Panics
///
/// If `offset` is not inside the block.
pub fn retarget(
    geometry: &Geometry,
    block: &mut [u8],
    offset: usize,
    ino: InodeNo,
    file_type: FileType,
) {
    let raw = raw_at(block, offset);
    raw.ino.set(ino.0);
    raw.file_type = code(geometry, file_type.entry_code());
}

/// Stores `to` in each entry of a directory block that names `from`. Returns the number of such
/// entries. Their types stay.
///
/// # Errors
///
/// A record that breaks a rule; the block is unchanged.
pub fn renumber(
    geometry: &Geometry,
    block: &mut [u8],
    from: InodeNo,
    to: InodeNo,
) -> Result<usize, Corrupt> {
    let body = body_len(geometry, block);
    renumber_inline(geometry, &mut block[..body], from, to)
}

/// As [`renumber`], for exactly the records in `bytes`: a part of a directory's inline data.
///
/// # Errors
///
/// As [`renumber`].
pub fn renumber_inline(
    geometry: &Geometry,
    bytes: &mut [u8],
    from: InodeNo,
    to: InodeNo,
) -> Result<usize, Corrupt> {
    let mut found = Vec::new();
    for entry in Entries::over(geometry, bytes) {
        let entry = entry?;
        if entry.is_used() && entry.ino == from {
            found.push(entry.offset);
        }
    }
    found.iter().for_each(|offset| raw_at(bytes, *offset).ino.set(to.0));
    Ok(found.len())
}
