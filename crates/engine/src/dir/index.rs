//! Blocks of the hash index: the root, which hides behind `.` and `..`, and inner nodes.
//!
//! A node is a sorted list of (hash, block); the hash of the first is not stored, as everything
//! before the second belongs to it. Bit 0 of a hash is not part of it: it says that entries of
//! that hash began in the block before.

use nextent_ondisk::{Corrupt, FileBlock, Structure};

use super::block::{entries, write_first_as_root};
use super::layout::{DirInfo, MIN_ENTRY};
use super::raw::{get16, get32, put16, put32};

/// Bytes of the checksum tail of an index block.
const NODE_TAIL: usize = 8;
/// Bytes of one (hash, block).
const SLOT: usize = 8;
/// Where the root's facts lie: after `.` and the head of `..`.
const ROOT_INFO: usize = 2 * MIN_ENTRY;
/// Bytes of the root's facts.
const ROOT_INFO_LEN: usize = 8;
/// Where the list begins in an inner node: after one empty entry as long as the block.
const NODE_BASE: usize = 8;
/// The top bits of a block number are reserved.
const BLOCK_MASK: u32 = 0x0fff_ffff;

/// Which of the two forms an index block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Root,
    Inner,
}

impl Form {
    /// The form of `block`.
    pub(super) fn of(block: FileBlock) -> Self {
        if block == FileBlock(0) { Form::Root } else { Form::Inner }
    }

    fn base(self) -> usize {
        match self {
            Form::Root => ROOT_INFO + ROOT_INFO_LEN,
            Form::Inner => NODE_BASE,
        }
    }

    /// How many slots fit.
    pub(super) fn limit(self, info: &DirInfo) -> usize {
        let tail = if info.csum.is_some() { NODE_TAIL } else { 0 };
        (info.block_size - self.base() - tail) / SLOT
    }
}

/// What the root says about the whole index.
#[derive(Clone, Copy, Debug)]
pub(super) struct RootInfo {
    pub(super) version: u8,
    /// Levels of inner nodes below the root.
    pub(super) levels: u8,
}

/// A checked index block.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    bytes: &'a [u8],
    form: Form,
    pub(super) count: usize,
    pub(super) limit: usize,
}

fn bad(name: &'static str, value: usize) -> Corrupt {
    Corrupt::field(Structure::DirectoryIndex, name, value as u64)
}

/// Checks the facts in the root block and returns them.
pub(super) fn root_info(info: &DirInfo, bytes: &[u8]) -> Result<RootInfo, Corrupt> {
    let mut walk = entries(info, bytes);
    for (name, len) in [(&b"."[..], MIN_ENTRY), (b"..", info.block_size - MIN_ENTRY)] {
        match walk.next() {
            Some(Ok(e)) if e.name == name && e.len == len && e.ino != 0 => {}
            _ => return Err(bad("entry before the index root", 0)),
        }
    }
    if get32(bytes, ROOT_INFO) != 0 {
        return Err(bad("reserved field", get32(bytes, ROOT_INFO) as usize));
    }
    let [version, len, levels, flags] =
        [bytes[ROOT_INFO + 4], bytes[ROOT_INFO + 5], bytes[ROOT_INFO + 6], bytes[ROOT_INFO + 7]];
    if usize::from(len) != ROOT_INFO_LEN {
        return Err(bad("length of the root's facts", len.into()));
    }
    if flags & 1 != 0 {
        return Err(bad("flags", flags.into()));
    }
    if levels >= info.index.map_or(2, |i| i.max_levels) {
        return Err(bad("index levels", levels.into()));
    }
    Ok(RootInfo { version, levels })
}

impl<'a> Node<'a> {
    /// Checks the head of an index block.
    pub(super) fn parse(info: &DirInfo, bytes: &'a [u8], form: Form) -> Result<Self, Corrupt> {
        if form == Form::Inner && !looks_inner(info, bytes) {
            return Err(bad("entry before the index node", get32(bytes, 0) as usize));
        }
        let (limit, count) = counts(bytes, form);
        if limit != form.limit(info) {
            return Err(bad("index limit", limit));
        }
        if count == 0 || count > limit {
            return Err(bad("index count", count));
        }
        Ok(Self { bytes, form, count, limit })
    }

    fn slot(&self, i: usize) -> usize {
        debug_assert!(i < self.count);
        self.form.base() + i * SLOT
    }

    /// The hash at `i`, with its continuation bit; 0 for the first.
    pub(super) fn hash(&self, i: usize) -> u32 {
        if i == 0 { 0 } else { get32(self.bytes, self.slot(i)) }
    }

    /// The block at `i`.
    pub(super) fn block(&self, i: usize) -> FileBlock {
        FileBlock(get32(self.bytes, self.slot(i) + 4) & BLOCK_MASK)
    }

    /// The last slot whose hash is not above `hash`.
    pub(super) fn search(&self, hash: u32) -> usize {
        let (mut low, mut high) = (1, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.hash(middle) > hash { high = middle } else { low = middle + 1 }
        }
        low - 1
    }
}

/// Whether the block begins as an inner node does: one empty entry over all of it.
pub(super) fn looks_inner(info: &DirInfo, bytes: &[u8]) -> bool {
    match entries(info, bytes).next() {
        Some(Ok(e)) => e.ino == 0 && e.len == info.block_size && e.name.is_empty(),
        _ => false,
    }
}

fn counts(bytes: &[u8], form: Form) -> (usize, usize) {
    let base = form.base();
    (get16(bytes, base).into(), get16(bytes, base + 2).into())
}

fn set_count(bytes: &mut [u8], form: Form, count: usize) {
    put16(bytes, form.base() + 2, count as u16);
}

/// Adds (hash, block) before slot `i`, which is at least 1; the caller knows there is room.
pub(super) fn add_slot(bytes: &mut [u8], form: Form, i: usize, hash: u32, block: FileBlock) {
    let (_, count) = counts(bytes, form);
    let (at, end) = (form.base() + i * SLOT, form.base() + count * SLOT);
    bytes.copy_within(at..end, at + SLOT);
    put32(bytes, at, hash);
    put32(bytes, at + 4, block.get());
    set_count(bytes, form, count + 1);
}

/// Forgets the slots from `i` on.
pub(super) fn cut_slots(bytes: &mut [u8], form: Form, i: usize) {
    let (_, count) = counts(bytes, form);
    bytes[form.base() + i * SLOT..form.base() + count * SLOT].fill(0);
    set_count(bytes, form, i);
}

/// Makes `bytes` an inner node of `slots`; the hash of the first is dropped.
pub(super) fn write_inner(info: &DirInfo, bytes: &mut [u8], slots: &[(u32, FileBlock)]) {
    bytes.fill(0);
    super::block::write_empty_over_all(bytes);
    write_slots(info, bytes, Form::Inner, slots);
}

/// Turns the first block of a directory into a root with one slot, for `block`.
///
/// `parent` and the types are those of the entries `.` and `..`.
pub(super) fn write_root(
    info: &DirInfo,
    bytes: &mut [u8],
    version: u8,
    parent: (u32, u8),
    block: FileBlock,
) {
    write_first_as_root(info, bytes, parent);
    bytes[ROOT_INFO + 4] = version;
    bytes[ROOT_INFO + 5] = ROOT_INFO_LEN as u8;
    write_slots(info, bytes, Form::Root, &[(0, block)]);
}

/// Replaces the root's slots by one for `block`, one level deeper.
pub(super) fn deepen_root(info: &DirInfo, bytes: &mut [u8], block: FileBlock) {
    cut_slots(bytes, Form::Root, 1);
    write_slots(info, bytes, Form::Root, &[(0, block)]);
    bytes[ROOT_INFO + 6] += 1;
}

fn write_slots(info: &DirInfo, bytes: &mut [u8], form: Form, slots: &[(u32, FileBlock)]) {
    for (i, &(hash, block)) in slots.iter().enumerate() {
        let at = form.base() + i * SLOT;
        put32(bytes, at, hash);
        put32(bytes, at + 4, block.get());
    }
    put16(bytes, form.base(), form.limit(info) as u16);
    set_count(bytes, form, slots.len());
}
