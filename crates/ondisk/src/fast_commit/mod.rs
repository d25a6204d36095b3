//! Fast commits: small records of changes, in a separate area at the journal's end.
//!
//! A record is a tag, a length and a value, all little endian. No record crosses a block. A fast
//! commit ends with a tail record, whose checksum covers all records since the previous tail.
//! Records after the last valid tail are not part of the volume. The area is valid only after a
//! replay of the log up to the transaction that its records name.
//!
//! Source: ext4 disk layout documentation, "Fast commits"; jbd2 documentation.

mod write;

pub use write::{FastCommit, add_range, inode};

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::checksum::csum;
use crate::error::{Corrupt, Structure};
use crate::extent::Extent;
use crate::{FileBlock, InodeNo, Tid};

const HEAD_LEN: usize = 4;
/// Known feature bits of fast commits: none.
const KNOWN_FEATURES: u32 = 0;

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHead {
    tag: U16,
    len: U16,
}

/// A parsed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// These blocks now belong to the file.
    AddRange(InodeNo, Extent),
    /// These blocks no longer belong to the file.
    DeleteRange(InodeNo, FileBlock, u32),
    /// A new inode and its first name.
    Create(Name<'a>),
    /// A further name of an inode.
    Link(Name<'a>),
    /// A removed name.
    Unlink(Name<'a>),
    /// The bytes of an inode. Bytes may be missing at the end: those of its attributes.
    Inode(InodeNo, &'a [u8]),
    /// Padding up to the block's end.
    Pad,
    /// The end of a fast commit.
    Tail {
        /// The transaction that the fast commit continues.
        tid: Tid,
        /// The checksum of all records since the previous tail.
        checksum: u32,
    },
    /// The start of the area.
    Head {
        /// Feature bits. A reader that does not know one must not replay.
        features: u32,
        /// The transaction that the records continue.
        tid: Tid,
    },
}

/// A name in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    /// The directory that holds the name.
    pub parent: InodeNo,
    /// The inode that has the name.
    pub ino: InodeNo,
    /// The name, 1 to 255 bytes.
    pub name: &'a [u8],
}

fn bad<T>(name: &'static str, value: usize) -> Result<T, Corrupt> {
    Err(Corrupt::field(Structure::FastCommit, name, value as u64))
}

/// The first `N` words of a value and the rest. With `exact`, the value has no rest.
fn words<const N: usize>(value: &[u8], exact: bool) -> Result<([u32; N], &[u8]), Corrupt> {
    match <[U32; N]>::ref_from_prefix(value) {
        Ok((words, rest)) if rest.is_empty() || !exact => Ok((words.map(|w| w.get()), rest)),
        _ => bad("fc_len", value.len()),
    }
}

fn name(value: &[u8]) -> Result<Name<'_>, Corrupt> {
    let ([parent, ino], name) = words::<2>(value, false)?;
    if !(1..=255).contains(&name.len()) {
        return bad("fc_len (of a name)", value.len());
    }
    Ok(Name { parent: InodeNo(parent), ino: InodeNo(ino), name })
}

fn parse_range(value: &[u8]) -> Result<Record<'_>, Corrupt> {
    let ([ino], extent) = words::<1>(value, false)?;
    match crate::extent::parse_one(extent) {
        Some(extent) if extent.len > 0 => Ok(Record::AddRange(InodeNo(ino), extent)),
        _ => bad("fc_len (of a range)", value.len()),
    }
}

fn parse(tag: u16, value: &[u8]) -> Result<Record<'_>, Corrupt> {
    Ok(match tag {
        1 => parse_range(value)?,
        2 => {
            let ([ino, block, len], _) = words::<3>(value, true)?;
            Record::DeleteRange(InodeNo(ino), FileBlock(block), len)
        }
        3 => Record::Create(name(value)?),
        4 => Record::Link(name(value)?),
        5 => Record::Unlink(name(value)?),
        6 => {
            let ([ino], bytes) = words::<1>(value, false)?;
            if bytes.len() < crate::inode::BASE_SIZE {
                return bad("fc_len (of an inode)", value.len());
            }
            Record::Inode(InodeNo(ino), bytes)
        }
        7 => Record::Pad,
        8 => {
            let ([tid, checksum], _) = words::<2>(value, false)?;
            Record::Tail { tid: Tid(tid), checksum }
        }
        9 => {
            let ([features, tid], _) = words::<2>(value, true)?;
            Record::Head { features, tid: Tid(tid) }
        }
        other => return bad("fc_tag", usize::from(other)),
    })
}

/// The records of one block of the area. The iterator ends after the first error.
#[derive(Clone)]
pub struct Records<'a> {
    block: &'a [u8],
    at: usize,
}

impl<'a> Records<'a> {
    /// The records in `block`.
    #[must_use]
    pub fn new(block: &'a [u8]) -> Self {
        Self { block, at: 0 }
    }

    /// The next record and its bytes.
    fn step(&mut self) -> Option<Result<(Record<'a>, &'a [u8]), Corrupt>> {
        let rest = &self.block[self.at..];
        let (head, values) = RawHead::ref_from_prefix(rest).ok()?;
        let len = usize::from(head.len.get());
        let Some(value) = values.get(..len) else {
            self.at = self.block.len();
            return Some(bad("fc_len (past the block)", len));
        };
        self.at += HEAD_LEN + len;
        let record = parse(head.tag.get(), value);
        if record.is_err() {
            self.at = self.block.len();
        }
        Some(record.map(|record| (record, &rest[..HEAD_LEN + len])))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().map(|step| step.map(|(record, _)| record))
    }
}

/// The outcome of one block's scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The scan needs the area's next block.
    Block,
    /// No later record is valid.
    Stop,
}

/// Counts the valid records of the area: all up to the last intact tail of the right transaction.
///
/// Protocol: pass the area's blocks to [`Scanner::block`] in order, until it returns
/// [`Next::Stop`]. Then replay the first [`Scanner::valid_records`] records.
#[derive(Clone, Debug)]
pub struct Scanner {
    expected: Tid,
    sum: u32,
    seen: usize,
    valid: usize,
}

impl Scanner {
    /// A scan for records that continue `expected`, the transaction after the log's last.
    #[must_use]
    pub fn new(expected: Tid) -> Self {
        Self { expected, sum: 0, seen: 0, valid: 0 }
    }

    /// Scans the next block.
    pub fn block(&mut self, block: &[u8]) -> Next {
        let mut records = Records::new(block);
        while let Some(step) = records.step() {
            match step {
                Ok((record, bytes)) if self.record(&record, bytes) => {}
                _ => return Next::Stop,
            }
        }
        Next::Block
    }

    /// The number of valid records so far, including heads, tails and padding.
    #[must_use]
    pub fn valid_records(&self) -> usize {
        self.valid
    }

    /// Adds one record. `false` if no later record is valid.
    fn record(&mut self, record: &Record<'_>, bytes: &[u8]) -> bool {
        // The area must start with a head.
        let is_head = matches!(record, Record::Head { .. });
        if self.seen == 0 && !is_head {
            return false;
        }
        self.seen += 1;
        match record {
            Record::Tail { tid, checksum } => {
                // The sum covers the tail up to the sum itself.
                self.sum = csum(self.sum, &bytes[..HEAD_LEN + 4]);
                if *tid != self.expected || *checksum != self.sum {
                    return false;
                }
                self.valid = self.seen;
                self.sum = 0;
            }
            Record::Head { features, tid } => {
                if *tid != self.expected || features & !KNOWN_FEATURES != 0 {
                    return false;
                }
                self.sum = csum(self.sum, bytes);
            }
            _ => self.sum = csum(self.sum, bytes),
        }
        true
    }
}

#[cfg(test)]
mod tests;
