//! Descriptor blocks: a tag for each image that follows.

use super::{HEADER, JournalFeatures, be16, be32, put_header, put32, seal_tail};
use crate::{BlockNo, Corrupt, Structure, Tid};

const ESCAPE: u32 = 1;
const SAME_UUID: u32 = 2;
const DELETED: u32 = 4;
const LAST: u32 = 8;
const UUID: usize = 16;

/// The form of the tags, which the journal's features select.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagFormat {
    size: usize,
    whole_sum: bool,
    short_sum: bool,
    wide: bool,
}

impl TagFormat {
    /// The form in a journal with `features`.
    #[must_use]
    pub fn new(features: JournalFeatures) -> Self {
        let whole_sum = features.has(JournalFeatures::CSUM_V3);
        let short_sum = features.has(JournalFeatures::CSUM_V2);
        let wide = features.has(JournalFeatures::WIDE);
        let size = match (whole_sum, short_sum, wide) {
            (true, ..) => 16,
            (false, sum, wide) => 8 + 2 * usize::from(sum) + 4 * usize::from(wide),
        };
        Self { size, whole_sum, short_sum, wide }
    }

    /// Bytes at the end of a descriptor or revoke block that hold its checksum.
    #[must_use]
    pub fn tail(self) -> usize {
        if self.whole_sum || self.short_sum { 4 } else { 0 }
    }

    /// The number of tags that always fit into a descriptor block.
    #[must_use]
    pub fn tags_per_block(self, block_size: usize) -> usize {
        (block_size - HEADER - 2 * UUID - self.tail()) / self.size
    }

    /// Bytes of a block number in a revoke block.
    #[must_use]
    pub fn revoke_size(self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// The number of block numbers that fit into a revoke block.
    #[must_use]
    pub fn revokes_per_block(self, block_size: usize) -> usize {
        (block_size - HEADER - 4 - self.tail()) / self.revoke_size()
    }

    /// Whether the tag has the checksum `sum` of an image as written.
    #[must_use]
    pub fn sum_matches(self, tag: &Tag, sum: u32) -> bool {
        if self.whole_sum { tag.sum == sum } else { !self.short_sum || tag.sum == sum & 0xffff }
    }
}

/// One image in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The block's number on the volume.
    pub block: BlockNo,
    /// Whether the image was written with its first four bytes zeroed.
    pub escaped: bool,
    /// Whether a replay must skip the image.
    pub deleted: bool,
    /// The image's checksum, 32 or 16 bits, if the form has one.
    pub sum: u32,
}

/// The tags of a descriptor block, in the order of the images after it.
///
/// # Errors
///
/// The iterator yields one `Corrupt` and ends if the block ends before its last tag.
pub fn tags(block: &[u8], format: TagFormat) -> impl Iterator<Item = Result<Tag, Corrupt>> {
    let end = block.len().saturating_sub(format.tail());
    let mut at = Some(HEADER);
    std::iter::from_fn(move || {
        let here = at?;
        if here + format.size > end {
            // A writer may fill the block completely without marking the last tag.
            at = None;
            let full = here > end.saturating_sub(format.size + UUID);
            return (!full).then(|| {
                Err(Corrupt::too_short(Structure::JournalBlock, here + format.size, end))
            });
        }
        let (tag, flags) = parse_tag(block, here, format)?;
        let uuid = if flags & SAME_UUID == 0 { UUID } else { 0 };
        at = (flags & LAST == 0).then_some(here + format.size + uuid);
        Some(Ok(tag))
    })
}

fn parse_tag(block: &[u8], at: usize, format: TagFormat) -> Option<(Tag, u32)> {
    let low = u64::from(be32(block, at)?);
    let (flags, high, sum) = if format.whole_sum {
        (be32(block, at + 4)?, be32(block, at + 8)?, be32(block, at + 12)?)
    } else {
        let high = if format.wide { be32(block, at + 8)? } else { 0 };
        (u32::from(be16(block, at + 6)?), high, u32::from(be16(block, at + 4)?))
    };
    let high = if format.wide { u64::from(high) } else { 0 };
    let tag = Tag {
        block: BlockNo(high << 32 | low),
        escaped: flags & ESCAPE != 0,
        deleted: flags & DELETED != 0,
        sum,
    };
    Some((tag, flags))
}

/// Builds a descriptor block.
pub struct DescriptorWriter {
    block: Vec<u8>,
    format: TagFormat,
    at: usize,
    last: usize,
}

impl DescriptorWriter {
    /// An empty descriptor of transaction `tid`.
    #[must_use]
    pub fn new(block_size: usize, format: TagFormat, tid: Tid) -> Self {
        let mut block = vec![0; block_size];
        put_header(&mut block, 1, tid);
        Self { block, format, at: HEADER, last: HEADER }
    }

    /// Whether another tag fits.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.at + self.format.size + UUID + self.format.tail() <= self.block.len()
    }

    /// Whether the block has no tag yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.at == HEADER
    }

    /// Adds a tag.
    ///
    /// # Panics
    ///
    /// If no tag fits.
    pub fn push(&mut self, block: BlockNo, escaped: bool, sum: u32) {
        assert!(self.has_room(), "descriptor block is full");
        let first = self.is_empty();
        let flags = if escaped { ESCAPE } else { 0 } | if first { 0 } else { SAME_UUID };
        let at = self.at;
        put32(&mut self.block, at, block.0 as u32);
        let high = (block.0 >> 32) as u32;
        if self.format.whole_sum {
            put32(&mut self.block, at + 8, high);
            put32(&mut self.block, at + 12, sum);
        } else {
            let sum = if self.format.short_sum { sum as u16 } else { 0 };
            self.block[at + 4..at + 6].copy_from_slice(&sum.to_be_bytes());
            if self.format.wide {
                put32(&mut self.block, at + 8, high);
            }
        }
        self.last = at;
        self.put_flags(flags);
        self.at += self.format.size + if first { UUID } else { 0 };
    }

    fn put_flags(&mut self, flags: u32) {
        if self.format.whole_sum {
            put32(&mut self.block, self.last + 4, flags);
        } else {
            self.block[self.last + 6..self.last + 8].copy_from_slice(&(flags as u16).to_be_bytes());
        }
    }

    fn flags(&self) -> u32 {
        if self.format.whole_sum {
            be32(&self.block, self.last + 4).unwrap_or(0)
        } else {
            be16(&self.block, self.last + 6).unwrap_or(0).into()
        }
    }

    /// Marks the last tag, stores the checksum and returns the block.
    #[must_use]
    pub fn finish(mut self, seed: u32) -> Vec<u8> {
        let flags = self.flags() | LAST;
        self.put_flags(flags);
        if self.format.tail() > 0 {
            seal_tail(seed, &mut self.block);
        }
        self.block
    }
}
