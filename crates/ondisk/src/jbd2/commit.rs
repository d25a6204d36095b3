//! Commit blocks.

use super::{HEADER, be32, put_header, put32};
use crate::Tid;
use crate::checksum::csum_without;

const AT_TYPE: usize = HEADER;
const AT_SIZE: usize = HEADER + 1;
const AT_SUM: usize = 0x10;
const AT_SECONDS: usize = 0x30;
const AT_NANOS: usize = 0x38;
const CRC32: u8 = 1;
/// Bytes that some kernels sum: the rest of the block is not written.
const PARTIAL: usize = 60;

/// A transaction's last block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitBlock {
    /// When it was written, in seconds since 1970.
    pub seconds: u64,
    /// Nanoseconds of that.
    pub nanos: u32,
    /// Version 1: the transaction's crc32, if the block carries one.
    pub crc32: Option<u32>,
}

impl CommitBlock {
    /// Reads a block whose header says that it is a commit.
    #[must_use]
    pub fn parse(block: &[u8]) -> Option<Self> {
        let high = u64::from(be32(block, AT_SECONDS)?);
        let low = u64::from(be32(block, AT_SECONDS + 4)?);
        let has_crc = block[AT_TYPE] == CRC32 && block[AT_SIZE] == 4;
        let crc32 = if has_crc { be32(block, AT_SUM) } else { None };
        Some(Self { seconds: high << 32 | low, nanos: be32(block, AT_NANOS)?, crc32 })
    }

    /// Whether the block's crc32c, or that of its header alone, is right.
    #[must_use]
    pub fn sum_matches(block: &[u8], seed: u32) -> bool {
        let Some(found) = be32(block, AT_SUM) else { return false };
        if csum_without(seed, block, AT_SUM, 4) == found {
            return true;
        }
        let mut partial = vec![0; block.len()];
        let n = PARTIAL.min(block.len());
        partial[..n].copy_from_slice(&block[..n]);
        csum_without(seed, &partial, AT_SUM, 4) == found
    }

    /// Version 1: whether the block carries the `crc32` of its transaction, or no sum at all.
    #[must_use]
    pub fn crc32_matches(block: &[u8], crc32: u32) -> bool {
        match (block.get(AT_TYPE), block.get(AT_SIZE), be32(block, AT_SUM)) {
            (Some(&CRC32), Some(4), Some(found)) => found == crc32,
            (Some(0), Some(0), Some(found)) => found == 0,
            _ => false,
        }
    }

    /// The block to write; with a crc32c if the journal has a `seed` for it.
    #[must_use]
    pub fn to_block(self, block_size: usize, tid: Tid, seed: Option<u32>) -> Vec<u8> {
        let mut block = vec![0; block_size];
        put_header(&mut block, 2, tid);
        put32(&mut block, AT_SECONDS, (self.seconds >> 32) as u32);
        put32(&mut block, AT_SECONDS + 4, self.seconds as u32);
        put32(&mut block, AT_NANOS, self.nanos);
        if let Some(crc) = self.crc32 {
            block[AT_TYPE] = CRC32;
            block[AT_SIZE] = 4;
            put32(&mut block, AT_SUM, crc);
        } else if let Some(seed) = seed {
            let sum = csum_without(seed, &block, AT_SUM, 4);
            put32(&mut block, AT_SUM, sum);
        }
        block
    }
}

/// The most-significant-bit-first CRC-32 (polynomial 0x04C11DB7) of `bytes`
/// continued from `crc`: version 1's sum over descriptors and images, begun at
/// all ones.
#[must_use]
pub fn crc32_be(crc: u32, bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(crc, |crc, &byte| crc << 8 ^ CRC32_TABLE[usize::from((crc >> 24) as u8 ^ byte)])
}

const CRC32_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc >> 31 == 1 { crc << 1 ^ 0x04c1_1db7 } else { crc << 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};
