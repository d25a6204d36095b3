//! Revoke blocks: numbers of blocks whose older images a replay must skip.

use super::{HEADER, TagFormat, be32, put_header, put32, seal_tail};
use crate::{BlockNo, Corrupt, Structure, Tid};

const FIRST: usize = HEADER + 4;

/// The block numbers in a revoke block.
///
/// # Errors
///
/// `Corrupt` if its length is larger than the block.
pub fn revoked(
    block: &[u8],
    format: TagFormat,
) -> Result<impl Iterator<Item = BlockNo> + '_, Corrupt> {
    let used = be32(block, HEADER).unwrap_or(u32::MAX) as usize;
    if used < FIRST || used > block.len().saturating_sub(format.tail()) {
        let used = used as u64;
        return Err(Corrupt::field(Structure::JournalBlock, "bytes of revoke records", used));
    }
    let number = |entry: &[u8]| BlockNo(entry.iter().fold(0, |n, &byte| n << 8 | u64::from(byte)));
    Ok(block[FIRST..used].chunks_exact(format.revoke_size()).map(number))
}

/// Builds a revoke block.
pub struct RevokeWriter {
    block: Vec<u8>,
    format: TagFormat,
    at: usize,
}

impl RevokeWriter {
    /// An empty revoke block of transaction `tid`.
    #[must_use]
    pub fn new(block_size: usize, format: TagFormat, tid: Tid) -> Self {
        let mut block = vec![0; block_size];
        put_header(&mut block, 5, tid);
        Self { block, format, at: FIRST }
    }

    /// Adds a block number; `false` if the block is full.
    pub fn push(&mut self, no: BlockNo) -> bool {
        let size = self.format.revoke_size();
        if self.at + size > self.block.len() - self.format.tail() {
            return false;
        }
        let bytes = no.0.to_be_bytes();
        self.block[self.at..self.at + size].copy_from_slice(&bytes[8 - size..]);
        self.at += size;
        true
    }

    /// Stores length and checksum and returns the block.
    #[must_use]
    pub fn finish(mut self, seed: u32) -> Vec<u8> {
        let used = self.at as u32;
        put32(&mut self.block, HEADER, used);
        if self.format.tail() > 0 {
            seal_tail(seed, &mut self.block);
        }
        self.block
    }
}
