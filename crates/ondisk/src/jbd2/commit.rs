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
/// Bytes that some kernels sum instead of the whole block; they do not write the rest.
const PARTIAL: usize = 60;

/// A transaction's last block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitBlock {
    /// Time of the commit, in seconds since 1970.
    pub seconds: u64,
    /// Nanoseconds of that time.
    pub nanos: u32,
    /// Version 1: the crc32 of the transaction, if the block has one.
    pub crc32: Option<u32>,
}

impl CommitBlock {
    /// Parses a block whose header says that it is a commit block.
    #[must_use]
    pub fn parse(block: &[u8]) -> Option<Self> {
        let high = u64::from(be32(block, AT_SECONDS)?);
        let low = u64::from(be32(block, AT_SECONDS + 4)?);
        let has_crc = block[AT_TYPE] == CRC32 && block[AT_SIZE] == 4;
        let crc32 = if has_crc { be32(block, AT_SUM) } else { None };
        Some(Self { seconds: high << 32 | low, nanos: be32(block, AT_NANOS)?, crc32 })
    }

    /// Whether the crc32c of the block, or of its header alone, is right.
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

    /// Version 1: whether the block has the transaction's `crc32`, or no checksum.
    #[must_use]
    pub fn crc32_matches(block: &[u8], crc32: u32) -> bool {
        match (block.get(AT_TYPE), block.get(AT_SIZE), be32(block, AT_SUM)) {
            (Some(&CRC32), Some(4), Some(found)) => found == crc32,
            (Some(0), Some(0), Some(found)) => found == 0,
            _ => false,
        }
    }

    /// Encodes the block, with a crc32c if the journal has a `seed` for it.
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

/// The CRC-32 of `bytes`, most significant bit first (polynomial 0x04C11DB7), continued from `crc`.
/// It is the checksum of version 1 over descriptors and images, with all ones as the first `crc`.
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
