//! Entries of one block: walk, find, place, take out, rewrite.
//!
//! Every walk checks each entry against the block before it is used and goes strictly forward, so
//! hostile bytes give a [`Corrupt`] and never a loop. The functions that change a block take
//! offsets that such a walk has just produced from the same bytes. The tail that holds the
//! checksum is never handed out as free space and never overwritten.

use nextent_ondisk::{Corrupt, InodeNo, Structure};

use super::layout::{DirInfo, HEAD, MIN_ENTRY, TAIL_SIZE, TAIL_TYPE, entry_size};
use super::raw::{get16, get32, put16, put32};

/// One entry as it lies in a block; `ino` 0 means that it is free.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawEntry<'a> {
    pub(super) at: usize,
    pub(super) len: usize,
    pub(super) ino: u32,
    pub(super) ftype: u8,
    pub(super) name: &'a [u8],
}

impl RawEntry<'_> {
    /// Bytes in use of its length.
    pub(super) fn used(&self) -> usize {
        if self.ino == 0 { 0 } else { entry_size(self.name.len()) }
    }
}

/// Walks the entries of `bytes`, free ones too; ends after the first error.
pub(super) struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
    filetype: bool,
}

/// All entries of a block, its tail (if any) as a free one.
pub(super) fn entries<'a>(info: &DirInfo, bytes: &'a [u8]) -> Entries<'a> {
    Entries { bytes, at: 0, filetype: info.filetype }
}

/// As [`entries`], from an offset at which an entry begins.
pub(super) fn entries_from<'a>(info: &DirInfo, bytes: &'a [u8], at: usize) -> Entries<'a> {
    Entries { bytes, at, filetype: info.filetype }
}

impl<'a> Entries<'a> {
    fn parse(&self) -> Result<RawEntry<'a>, Corrupt> {
        let (bytes, at) = (self.bytes, self.at);
        let room = bytes.len() - at;
        if room < MIN_ENTRY {
            return Err(bad("room left for the last entry", room));
        }
        let len = length_from_disk(get16(bytes, at + 4), bytes.len());
        if len < MIN_ENTRY || len % 4 != 0 || len > room {
            return Err(bad("entry length", len));
        }
        if len < room && room - len < MIN_ENTRY {
            return Err(bad("entry length", len));
        }
        let name_len = usize::from(bytes[at + 6]);
        if entry_size(name_len) > len {
            return Err(bad("name length", name_len));
        }
        let ino = get32(bytes, at);
        let (ftype, high) = if self.filetype { (bytes[at + 7], 0) } else { (0, bytes[at + 7]) };
        if ino != 0 && high != 0 {
            return Err(bad("name length", name_len | usize::from(high) << 8));
        }
        if ino != 0 && name_len == 0 {
            return Err(bad("name length", 0));
        }
        let name = &bytes[at + HEAD..at + HEAD + name_len];
        Ok(RawEntry { at, len, ino, ftype, name })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<RawEntry<'a>, Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let entry = self.parse();
        self.at = match &entry {
            Ok(e) => e.at + e.len,
            Err(_) => self.bytes.len(),
        };
        Some(entry)
    }
}

fn bad(name: &'static str, value: usize) -> Corrupt {
    Corrupt::field(Structure::Directory, name, value as u64)
}

/// The 16-bit length field cannot hold 65536, so two values stand for a whole block of that size.
fn length_from_disk(len: u16, block_size: usize) -> usize {
    if block_size >= 65536 && (len == 0 || len == u16::MAX) {
        return block_size;
    }
    usize::from(len)
}

fn length_to_disk(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}

/// The live entry called `name`, and the offset of the entry before it.
pub(super) fn find(
    info: &DirInfo,
    bytes: &[u8],
    name: &[u8],
) -> Result<Option<(usize, Option<usize>)>, Corrupt> {
    let mut before = None;
    for entry in entries(info, bytes) {
        let entry = entry?;
        if entry.ino != 0 && entry.name == name {
            return Ok(Some((entry.at, before)));
        }
        before = Some(entry.at);
    }
    Ok(None)
}

/// What a search for a free place in a leaf found out.
pub(super) struct Room {
    /// The first place that is large enough.
    pub(super) at: Option<usize>,
    /// Bytes that live entries need, packed.
    pub(super) live: usize,
    /// Whether the name is there already.
    pub(super) exists: bool,
}

/// Looks for a place for `name` and for the name itself.
pub(super) fn room_for(info: &DirInfo, bytes: &[u8], name: &[u8]) -> Result<Room, Corrupt> {
    let need = entry_size(name.len());
    let mut room = Room { at: None, live: 0, exists: false };
    for entry in entries(info, leaf_part(info, bytes)?) {
        let entry = entry?;
        if entry.ino != 0 && entry.name == name {
            room.exists = true;
        }
        if room.at.is_none() && entry.len - entry.used() >= need {
            room.at = Some(entry.at);
        }
        room.live += entry.used();
    }
    Ok(room)
}

/// The part of a leaf that holds entries; with checksums the tail must follow it.
pub(super) fn leaf_part<'a>(info: &DirInfo, bytes: &'a [u8]) -> Result<&'a [u8], Corrupt> {
    if info.csum.is_some() && !has_tail(bytes) {
        return Err(Corrupt::field(Structure::Directory, "checksum tail", 0u64));
    }
    Ok(&bytes[..info.usable()])
}

/// Whether the block ends in a checksum tail.
pub(super) fn has_tail(bytes: &[u8]) -> bool {
    let at = bytes.len() - TAIL_SIZE;
    get32(bytes, at) == 0
        && usize::from(get16(bytes, at + 4)) == TAIL_SIZE
        && bytes[at + 6] == 0
        && bytes[at + 7] == TAIL_TYPE
}

/// Puts an entry into the place at `at` found by [`room_for`].
pub(super) fn place(
    info: &DirInfo,
    bytes: &mut [u8],
    at: usize,
    name: &[u8],
    ino: InodeNo,
    ftype: u8,
) {
    let mut len = length_from_disk(get16(bytes, at + 4), bytes.len());
    let mut start = at;
    if get32(bytes, at) != 0 {
        let used = entry_size(usize::from(bytes[at + 6]));
        put16(bytes, at + 4, length_to_disk(used));
        start += used;
        len -= used;
    }
    write_entry(info, bytes, start, len, name, ino.get(), ftype);
}

fn write_entry(
    info: &DirInfo,
    bytes: &mut [u8],
    at: usize,
    len: usize,
    name: &[u8],
    ino: u32,
    ftype: u8,
) {
    put32(bytes, at, ino);
    put16(bytes, at + 4, length_to_disk(len));
    bytes[at + 6] = name.len() as u8;
    bytes[at + 7] = if info.filetype { ftype } else { 0 };
    bytes[at + HEAD..at + HEAD + name.len()].copy_from_slice(name);
    let end = at + entry_size(name.len());
    bytes[at + HEAD + name.len()..end].fill(0);
}

/// Frees the entry at `at`: joins it to the one before, or marks it free. Its name is wiped.
pub(super) fn take_out(bytes: &mut [u8], at: usize, before: Option<usize>) {
    let size = bytes.len();
    let len = length_from_disk(get16(bytes, at + 4), size);
    let wipe = entry_size(usize::from(bytes[at + 6])).min(len);
    match before {
        Some(before) => {
            let joined = length_from_disk(get16(bytes, before + 4), size) + len;
            put16(bytes, before + 4, length_to_disk(joined));
            bytes[at..at + wipe].fill(0);
        }
        None => {
            put32(bytes, at, 0);
            bytes[at + 6..at + wipe].fill(0);
        }
    }
}

/// Points the entry at `at` at another inode.
pub(super) fn retarget(info: &DirInfo, bytes: &mut [u8], at: usize, ino: InodeNo, ftype: u8) {
    put32(bytes, at, ino.get());
    if info.filetype {
        bytes[at + 7] = ftype;
    }
}

/// An entry on its way from one block to another.
#[derive(Clone, Debug)]
pub(super) struct Moved {
    pub(super) ino: u32,
    pub(super) ftype: u8,
    pub(super) name: Box<[u8]>,
}

impl Moved {
    pub(super) fn of(entry: &RawEntry<'_>) -> Self {
        Self { ino: entry.ino, ftype: entry.ftype, name: entry.name.into() }
    }

    pub(super) fn size(&self) -> usize {
        entry_size(self.name.len())
    }
}

/// Makes `bytes` a leaf that holds exactly `list`, packed; it must fit.
pub(super) fn write_leaf<'m>(
    info: &DirInfo,
    bytes: &mut [u8],
    list: impl IntoIterator<Item = &'m Moved>,
) {
    bytes.fill(0);
    let usable = info.usable();
    let mut last = None;
    let mut at = 0;
    for entry in list {
        let size = entry.size();
        write_entry(info, bytes, at, size, &entry.name, entry.ino, entry.ftype);
        last = Some(at);
        at += size;
    }
    let last = last.unwrap_or(0);
    put16(bytes, last + 4, length_to_disk(usable - last));
    if info.csum.is_some() {
        put16(bytes, usable + 4, TAIL_SIZE as u16);
        bytes[usable + 7] = TAIL_TYPE;
    }
}

/// Makes `bytes` the first block of a new directory.
pub(super) fn write_first(info: &DirInfo, bytes: &mut [u8], parent: InodeNo, dir_type: u8) {
    let dot = Moved { ino: info.ino.get(), ftype: dir_type, name: b"."[..].into() };
    let dotdot = Moved { ino: parent.get(), ftype: dir_type, name: b".."[..].into() };
    write_leaf(info, bytes, [&dot, &dotdot]);
}

/// Empties the block and writes `.` and a `..` that reaches to its end, as an index root needs.
pub(super) fn write_first_as_root(info: &DirInfo, bytes: &mut [u8], parent: (u32, u8)) {
    bytes.fill(0);
    write_entry(info, bytes, 0, MIN_ENTRY, b".", info.ino.get(), parent.1);
    let rest = bytes.len() - MIN_ENTRY;
    write_entry(info, bytes, MIN_ENTRY, rest, b"..", parent.0, parent.1);
}

/// Writes the head of one free entry that spans the block, as an index node needs.
pub(super) fn write_empty_over_all(bytes: &mut [u8]) {
    let len = bytes.len();
    put16(bytes, 4, length_to_disk(len));
}
