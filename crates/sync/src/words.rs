//! Bytes that several threads may copy to and from at once.
//!
//! Each eight bytes are moved as one; what two threads store in the same eight is either's, byte
//! by byte. Copies order nothing else: who must see what another copied learns of it by a lock or
//! an atomic. No statistics and no model see them.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes in a word.
const WORD: usize = 8;

/// Eight times `N` bytes, shared by reference. [relaxed]
pub struct Words<const N: usize>([AtomicU64; N]);

impl<const N: usize> Words<N> {
    /// Zeros.
    #[must_use]
    pub fn zeros() -> Self {
        Self([const { AtomicU64::new(0) }; N])
    }

    /// A copy, each word as of some moment.
    #[must_use]
    pub fn copied(&self) -> Self {
        Self(std::array::from_fn(|n| AtomicU64::new(self.0[n].load(Ordering::Relaxed))))
    }

    /// The words of a range, and the bytes to skip in the first; none if the range does not begin
    /// and end with words.
    #[inline]
    fn whole(&self, at: usize, len: usize) -> Option<&[AtomicU64]> {
        let aligned = at.is_multiple_of(WORD) && len.is_multiple_of(WORD);
        aligned.then(|| &self.0[at / WORD..(at + len) / WORD])
    }

    /// Copies the bytes from `at` on to `to`.
    ///
    /// # Panics
    /// If they reach beyond the end.
    #[inline]
    pub fn read(&self, at: usize, to: &mut [u8]) {
        let Some(words) = self.whole(at, to.len()) else { return self.read_parts(at, to) };
        for (word, bytes) in words.iter().zip(to.chunks_exact_mut(WORD)) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
    }

    #[cold]
    fn read_parts(&self, at: usize, to: &mut [u8]) {
        for (n, byte) in to.iter_mut().enumerate() {
            let at = at + n;
            *byte = self.0[at / WORD].load(Ordering::Relaxed).to_ne_bytes()[at % WORD];
        }
    }

    /// Copies `from` to the bytes from `at` on.
    ///
    /// # Panics
    /// If they reach beyond the end.
    #[inline]
    pub fn write(&self, at: usize, from: &[u8]) {
        let Some(words) = self.whole(at, from.len()) else { return self.write_parts(at, from) };
        for (word, bytes) in words.iter().zip(from.chunks_exact(WORD)) {
            let bytes = bytes.try_into().expect("a chunk has as many bytes as a word");
            word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
    }

    #[cold]
    fn write_parts(&self, mut at: usize, mut from: &[u8]) {
        while !from.is_empty() {
            let within = at % WORD;
            let (part, rest) = from.split_at(from.len().min(WORD - within));
            // The other bytes of the word are somebody else's.
            let merge = |word: u64| {
                let mut bytes = word.to_ne_bytes();
                bytes[within..within + part.len()].copy_from_slice(part);
                Some(u64::from_ne_bytes(bytes))
            };
            let word = &self.0[at / WORD];
            let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, merge);
            (at, from) = (at + part.len(), rest);
        }
    }

    /// Makes the bytes of `range` zeros.
    ///
    /// # Panics
    /// If they reach beyond the end.
    pub fn clear(&self, range: Range<usize>) {
        const ZEROS: [u8; 512] = [0; 512];
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(ZEROS.len());
            self.write(at, &ZEROS[..len]);
            at += len;
        }
    }
}

#[cfg(all(test, not(any(feature = "model-shuttle", feature = "model-loom"))))]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_where_they_belong() {
        let words = Words::<8>::zeros();
        let mut plain = [0u8; 64];
        let mut seed = 1usize;
        for _ in 0..500 {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let (at, len) = ((seed >> 33) % 64, (seed >> 40) % 64);
            let len = len.min(64 - at);
            let bytes: Vec<u8> = (0..len).map(|n| (seed >> 20) as u8 ^ n as u8).collect();
            if seed >> 63 == 0 {
                words.write(at, &bytes);
                plain[at..at + len].copy_from_slice(&bytes);
            } else {
                words.clear(at..at + len);
                plain[at..at + len].fill(0);
            }
            let mut part = vec![0; len];
            words.read(at, &mut part);
            assert_eq!(part, plain[at..at + len]);
        }
        let mut all = [0; 64];
        words.copied().read(0, &mut all);
        assert_eq!(all, plain);
    }

    #[test]
    fn neighbours_in_a_word_do_not_lose_bytes() {
        let words = Words::<1>::zeros();
        std::thread::scope(|scope| {
            for t in 0..4u8 {
                let words = &words;
                scope.spawn(move || {
                    for n in 0..2000u32 {
                        words.write(usize::from(t) * 2, &(n as u16).to_ne_bytes());
                        let mut own = [0; 2];
                        words.read(usize::from(t) * 2, &mut own);
                        assert_eq!(u16::from_ne_bytes(own), n as u16);
                    }
                });
            }
        });
    }
}
