//! Encodes records and the blocks of one fast commit.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{Immutable, IntoBytes, Unaligned};

use super::{HEAD_LEN, KNOWN_FEATURES};
use crate::checksum::csum;
use crate::extent::{Extent, bytes_of_one};
use crate::{InodeNo, Tid};

const ADD_RANGE: u16 = 1;
const INODE: u16 = 6;
const PAD: u16 = 7;
const TAIL: u16 = 8;
const HEAD: u16 = 9;

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct RawHead {
    tag: U16,
    len: U16,
}

fn put(out: &mut Vec<u8>, tag: u16, parts: &[&[u8]], len: usize) {
    let len = u16::try_from(len).expect("a record is shorter than a block of 64 KiB");
    out.extend_from_slice(RawHead { tag: U16::new(tag), len: U16::new(len) }.as_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

fn record(tag: u16, parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, tag, parts, parts.iter().map(|part| part.len()).sum());
    out
}

/// A record that adds `extent` to the file.
///
/// # Panics
///
/// If the extent's length is outside the limits of its kind.
#[must_use]
pub fn add_range(ino: InodeNo, extent: Extent) -> Vec<u8> {
    record(ADD_RANGE, &[U32::new(ino.0).as_bytes(), &bytes_of_one(extent)])
}

/// A record of an inode; `bytes` are those of the inode table.
#[must_use]
pub fn inode(ino: InodeNo, bytes: &[u8]) -> Vec<u8> {
    record(INODE, &[U32::new(ino.0).as_bytes(), bytes])
}

/// Builds the blocks of one fast commit: records in sequence, none across two blocks, each block
/// padded, and a tail at the end.
///
/// # Examples
///
/// ```
/// use nextent_ondisk::fast_commit::{FastCommit, Next, Scanner, inode};
/// use nextent_ondisk::{InodeNo, Tid};
/// let mut commit = FastCommit::new(1024);
/// commit.head(Tid(7));
/// commit.push(&inode(InodeNo(12), &[0; 256]));
/// let blocks = commit.finish(Tid(7));
/// assert_eq!(blocks.len(), 1024);
/// let mut scanner = Scanner::new(Tid(7));
/// assert_eq!(scanner.block(&blocks), Next::Block);
/// assert_eq!(scanner.valid_records(), 3);
/// ```
#[derive(Clone, Debug)]
pub struct FastCommit {
    block_size: usize,
    bytes: Vec<u8>,
}

impl FastCommit {
    /// An empty fast commit for blocks of `block_size` bytes.
    #[must_use]
    pub fn new(block_size: usize) -> Self {
        Self { block_size, bytes: Vec::new() }
    }

    /// Starts the area with the head record. The first fast commit of `tid` needs it.
    pub fn head(&mut self, tid: Tid) {
        let values = [U32::new(KNOWN_FEATURES), U32::new(tid.0)];
        self.push(&record(HEAD, &[values.as_bytes()]));
    }

    /// Adds a record.
    ///
    /// # Panics
    ///
    /// If it is longer than [`longest`](Self::longest).
    pub fn push(&mut self, record: &[u8]) {
        assert!(record.len() <= Self::longest(self.block_size), "a record fits into a block");
        self.make_room(record.len() + HEAD_LEN);
        self.bytes.extend_from_slice(record);
    }

    /// Bytes of the longest record: a padding record must fit after it.
    #[must_use]
    pub fn longest(block_size: usize) -> usize {
        block_size - HEAD_LEN
    }

    /// Pads the block if fewer than `len` bytes of it are left.
    fn make_room(&mut self, len: usize) {
        let left = self.left();
        if left < len {
            put(&mut self.bytes, PAD, &[], left - HEAD_LEN);
            self.fill();
        }
    }

    /// Bytes left in the block.
    fn left(&self) -> usize {
        self.block_size - self.bytes.len() % self.block_size
    }

    fn fill(&mut self) {
        let len = self.bytes.len().next_multiple_of(self.block_size);
        self.bytes.resize(len, 0);
    }

    /// Ends the fast commit of `tid` and returns whole blocks.
    #[must_use]
    pub fn finish(mut self, tid: Tid) -> Vec<u8> {
        self.make_room(HEAD_LEN + 8);
        let value = self.left() - HEAD_LEN;
        put(&mut self.bytes, TAIL, &[U32::new(tid.0).as_bytes()], value);
        let sum = csum(0, &self.bytes);
        self.bytes.extend_from_slice(U32::new(sum).as_bytes());
        self.fill();
        self.bytes
    }
}
