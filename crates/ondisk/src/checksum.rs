//! The two checksums of ext4: crc32c, and the crc16 of older group descriptors.
//!
//! This module only sums bytes. Each structure's module knows which bytes and seed its checksum
//! takes.
//!
//! Source: ext4 disk layout documentation, "Checksums".

use crc_fast::{CrcAlgorithm, Digest};

/// The seed of a sum that starts with these bytes.
pub const START: u32 = !0;

/// The crc32c (Castagnoli) of `bytes`, continued from `seed`. It lacks the usual inversion at both
/// ends: ext4 passes the running value in and stores it unchanged.
#[must_use]
pub fn csum(seed: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, seed.into());
    digest.update(bytes);
    // The state of a 32-bit sum has 32 bits.
    digest.get_state() as u32
}

/// [`csum`] of a 32-bit number in disk order (little endian).
#[must_use]
pub fn csum_u32(seed: u32, value: u32) -> u32 {
    csum(seed, &value.to_le_bytes())
}

/// [`csum`] of a 64-bit number in disk order (little endian).
#[must_use]
pub fn csum_u64(seed: u32, value: u64) -> u32 {
    csum(seed, &value.to_le_bytes())
}

/// [`csum`] of `bytes` as if `len` bytes at `at` were zero, so that a structure's sum skips the
/// field that holds it. `len` is at most 8.
#[must_use]
pub(crate) fn csum_without(seed: u32, bytes: &[u8], at: usize, len: usize) -> u32 {
    const ZERO: [u8; 8] = [0; 8];
    let at = at.min(bytes.len());
    let end = (at + len.min(ZERO.len())).min(bytes.len());
    let before = csum(seed, &bytes[..at]);
    csum(csum(before, &ZERO[..end - at]), &bytes[end..])
}

/// The crc16 (reflected polynomial 0xA001) of `bytes`, continued from `seed`. Group descriptors use
/// it with the feature `uninit_bg`.
#[must_use]
pub fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(seed, |crc, &byte| {
        (crc >> 8) ^ CRC16_TABLE[usize::from((crc ^ u16::from(byte)) & 0xff)]
    })
}

const CRC16_TABLE: [u16; 256] = crc16_table();

const fn crc16_table() -> [u16; 256] {
    let mut table = [0u16; 256];
    let mut byte = 0u16;
    while byte < 256 {
        let mut crc = byte;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xA001 } else { crc >> 1 };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sums_have_their_published_check_values() {
        // The published check value of CRC-32C over "123456789" is E3069283 after inversion.
        assert_eq!(!csum(START, b"123456789"), 0xE306_9283);
        // CRC-16/ARC over the same text is BB3D with seed 0.
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
    }

    #[test]
    fn crc32c_equals_the_bitwise_polynomial_for_every_length() {
        let bits = |mut sum: u32, byte: u8| {
            sum ^= u32::from(byte);
            (0..8)
                .for_each(|_| sum = if sum & 1 == 1 { (sum >> 1) ^ 0x82F6_3B78 } else { sum >> 1 });
            sum
        };
        let bytes: Vec<u8> = (0..5000_u32).map(|n| ((n * n) >> 3) as u8 ^ n as u8).collect();
        for from in [0, 1, 7, 8, 33] {
            let mut sum = 0x1234_5678;
            for to in from..from + 4200 {
                if to < from + 600 || to % 64 < 3 {
                    assert_eq!(csum(0x1234_5678, &bytes[from..to]), sum, "{from}..{to}");
                }
                sum = bits(sum, bytes[to]);
            }
        }
    }

    #[test]
    fn crc32c_chains_and_skips_a_field() {
        let whole = csum(START, b"abcdefgh");
        assert_eq!(csum(csum(START, b"abc"), b"defgh"), whole);
        assert_eq!(csum_without(START, b"abXXXXgh", 2, 4), csum(START, b"ab\0\0\0\0gh"));
        assert_eq!(csum_u32(7, 0x6463_6261), csum(7, b"abcd"));
    }
}
