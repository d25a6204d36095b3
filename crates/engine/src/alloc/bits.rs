//! Operations on ranges of bits in bitmaps of 64-bit words.
//!
//! Bit `i` is bit `i % 64` of word `i / 64`: the order of ext4's bitmaps read as little-endian
//! words. A range outside the bitmap panics.

use nextent_num::{must_fit, to_usize};

/// The indexes of the words that `[start, end)` overlaps, each with the mask of its bits.
pub fn words(start: u32, end: u32) -> impl Iterator<Item = (usize, u64)> {
    let mut at = start;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let bit = at % 64;
        let n = (64 - bit).min(end - at);
        let piece = (to_usize(at / 64), (u64::MAX >> (64 - n)) << bit);
        at += n;
        Some(piece)
    })
}

/// Sets `[start, end)`.
#[inline]
pub fn set(bits: &mut [u64], start: u32, end: u32) {
    // Fast path: most requests set a few bits of one word.
    let bit = start % 64;
    if start < end && end - start <= 64 - bit {
        bits[to_usize(start / 64)] |= (u64::MAX >> (64 - (end - start))) << bit;
        return;
    }
    for (word, mask) in words(start, end) {
        bits[word] |= mask;
    }
}

/// Clears `[start, end)` and returns how many of the bits were set.
pub fn clear(bits: &mut [u64], start: u32, end: u32) -> u32 {
    let mut cleared = 0;
    for (word, mask) in words(start, end) {
        cleared += (bits[word] & mask).count_ones();
        bits[word] &= !mask;
    }
    cleared
}

/// Whether bit `at` is set.
pub fn test(bits: &[u64], at: u32) -> bool {
    bits[to_usize(at / 64)] >> (at % 64) & 1 == 1
}

/// The first set bit of `[start, end)`.
pub fn next_set(bits: &[u64], start: u32, end: u32) -> Option<u32> {
    words(start, end).find_map(|(word, mask)| first(word, bits[word] & mask))
}

/// The first clear bit of `[start, end)`.
pub fn next_clear(bits: &[u64], start: u32, end: u32) -> Option<u32> {
    words(start, end).find_map(|(word, mask)| first(word, !bits[word] & mask))
}

fn first(word: usize, bits: u64) -> Option<u32> {
    (bits != 0).then(|| must_fit::<u32, _>(word) * 64 + bits.trailing_zeros())
}

/// The number of set bits in `[start, end)`.
pub fn count(bits: &[u64], start: u32, end: u32) -> u32 {
    words(start, end).map(|(word, mask)| (bits[word] & mask).count_ones()).sum()
}

/// The runs of set bits in `[start, end)` as (first bit, length).
pub fn runs(bits: &[u64], start: u32, end: u32) -> impl Iterator<Item = (u32, u32)> {
    let mut at = start;
    std::iter::from_fn(move || {
        let first = next_set(bits, at, end)?;
        let stop = next_clear(bits, first, end).unwrap_or(end);
        at = stop;
        Some((first, stop - first))
    })
}

/// Reads words from bitmap bytes. Missing bytes read as zero.
pub fn load(words: &mut [u64], bytes: &[u8]) {
    let mut chunks = bytes.chunks(8);
    for word in words {
        let chunk = chunks.next().unwrap_or(&[]);
        *word = chunk.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
    }
}

/// Writes words to bitmap bytes, as many as `bytes` holds.
pub fn store(words: &[u64], bytes: &mut [u8]) {
    for (chunk, &word) in bytes.chunks_mut(8).zip(words) {
        for (i, byte) in chunk.iter_mut().enumerate() {
            *byte = must_fit(word >> (8 * i) & 0xff);
        }
    }
}

/// Number of words for `bits` bits.
pub fn word_count(bits: u32) -> usize {
    to_usize(bits.div_ceil(64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cross_words() {
        let mut bits = [0u64; 4];
        set(&mut bits, 3, 200);
        assert_eq!(count(&bits, 0, 256), 197);
        assert_eq!(next_set(&bits, 0, 256), Some(3));
        assert_eq!(next_clear(&bits, 3, 256), Some(200));
        assert_eq!(clear(&mut bits, 64, 130), 66);
        assert_eq!(clear(&mut bits, 64, 130), 0);
        assert_eq!(runs(&bits, 0, 256).collect::<Vec<_>>(), [(3, 61), (130, 70)]);
        assert!(test(&bits, 63) && !test(&bits, 64));
        assert_eq!(next_set(&bits, 70, 100), None);
    }

    #[test]
    fn load_and_store_use_the_bit_order_of_the_disk() {
        let bytes = [0x01, 0x80, 0, 0, 0, 0, 0, 0xff, 0x02];
        let mut words = [0u64; 2];
        load(&mut words, &bytes);
        assert!(test(&words, 0) && test(&words, 15) && test(&words, 56) && test(&words, 65));
        assert_eq!(count(&words, 0, 128), 11);
        let mut back = [0u8; 9];
        store(&words, &mut back);
        assert_eq!(back, bytes);
    }
}
