//! The journal: a superblock and a ring of transactions, all big endian.
//!
//! A transaction consists of descriptor blocks, each followed by the images that it lists, revoke
//! blocks, and one commit block.
//!
//! Source: ext4 disk layout documentation, "Journal (jbd2)".

mod commit;
mod revoke;
mod superblock;
mod tag;

pub use commit::{CommitBlock, crc32_be};
pub use revoke::{RevokeWriter, revoked};
pub use superblock::{JournalFeatures, JournalSuperblock};
pub use tag::{DescriptorWriter, Tag, TagFormat, tags};

use crate::checksum::{START, csum};
use crate::{Corrupt, Structure, Tid};

/// The first four bytes of every journal block that is not an image.
pub const MAGIC: u32 = 0xc03b_3998;

/// Bytes of the header of these blocks.
pub const HEADER: usize = 12;

/// The type of a journal block with a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockType {
    /// Lists the images after it.
    Descriptor,
    /// Ends a transaction.
    Commit,
    /// The superblock, version 1 or 2.
    Superblock,
    /// Lists blocks whose older images a replay must skip.
    Revoke,
}

/// Parses the header of a journal block; `None` if it has none.
#[must_use]
pub fn header(block: &[u8]) -> Option<(BlockType, Tid)> {
    if be32(block, 0)? != MAGIC {
        return None;
    }
    let kind = match be32(block, 4)? {
        1 => BlockType::Descriptor,
        2 => BlockType::Commit,
        3 | 4 => BlockType::Superblock,
        5 => BlockType::Revoke,
        _ => return None,
    };
    Some((kind, Tid(be32(block, 8)?)))
}

/// Whether an image begins like a journal block, so that it must be written escaped: with zeros as
/// its first four bytes.
#[must_use]
pub fn needs_escape(image: &[u8]) -> bool {
    be32(image, 0) == Some(MAGIC)
}

/// Zeros the first four bytes of an image, for the log.
pub fn escape(image: &mut [u8]) {
    image[..4].fill(0);
}

/// Restores the first four bytes of an escaped image.
pub fn unescape(image: &mut [u8]) {
    image[..4].copy_from_slice(&MAGIC.to_be_bytes());
}

/// The seed of all checksums in a journal with `uuid`.
#[must_use]
pub fn checksum_seed(uuid: &[u8; 16]) -> u32 {
    csum(START, uuid)
}

/// The checksum of an image as written (after escaping) in transaction `tid`.
#[must_use]
pub fn image_checksum(seed: u32, tid: Tid, image: &[u8]) -> u32 {
    csum(csum(seed, &tid.0.to_be_bytes()), image)
}

/// Stores the checksum in the last four bytes of a descriptor or revoke block.
pub fn seal_tail(seed: u32, block: &mut [u8]) {
    let at = block.len() - 4;
    block[at..].fill(0);
    let sum = csum(seed, block);
    block[at..].copy_from_slice(&sum.to_be_bytes());
}

/// Compares the checksum in the last four bytes of a descriptor or revoke block.
///
/// # Errors
///
/// `Corrupt` if it does not match.
pub fn check_tail(seed: u32, block: &[u8]) -> Result<(), Corrupt> {
    let at = block.len().saturating_sub(4);
    let found = be32(block, at)
        .ok_or_else(|| Corrupt::too_short(Structure::JournalBlock, 4, block.len()))?;
    let expected = csum(csum(seed, &block[..at]), &[0; 4]);
    if found == expected {
        Ok(())
    } else {
        Err(Corrupt::checksum(Structure::JournalBlock, found, expected))
    }
}

fn put_header(block: &mut [u8], kind: u32, tid: Tid) {
    put32(block, 0, MAGIC);
    put32(block, 4, kind);
    put32(block, 8, tid.0);
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes(bytes.try_into().ok()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod kernel_tests;
#[cfg(test)]
mod tests;
