//! Bytes that several threads may copy to and from at once.
//!
//! Of two concurrent stores to the same byte, either wins. Copies order nothing else: a thread that
//! must see another's copy synchronises by a lock or an atomic. Statistics and models do not see
//! copies.
//!
//! Long copies call the C library's memcpy in a way that the compiler cannot see. Atomic loads and
//! stores of words, which the language offers, move only eight bytes at a time.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes in a word.
const WORD: usize = 8;

/// Bytes of a page.
const PAGE: usize = 4096;

/// Eight times `N` bytes, shared by reference. All accesses are relaxed.
#[repr(transparent)]
pub struct Words<const N: usize>([AtomicU64; N]);

impl<const N: usize> Words<N> {
    /// `count` of zeros, allocated zeroed: memory that is new from the system is not touched.
    ///
    /// # Panics
    /// If their size overflows.
    #[must_use]
    pub fn zeros(count: usize) -> Box<[Self]> {
        let layout = Layout::array::<Self>(count).expect("so many words fit into memory");
        if layout.size() == 0 {
            return (0..count).map(|_| Self([const { AtomicU64::new(0) }; N])).collect();
        }
        // SAFETY: the layout is not empty.
        let new = unsafe { alloc_zeroed(layout) }.cast::<Self>();
        if new.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: the memory is the global allocator's, of this layout and owned here, and words of
        // zeros are valid.
        unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(new, count)) }
    }

    /// Copies the words of `other`, each as of some moment during the call.
    pub fn copy_from(&self, other: &Self) {
        for (to, from) in self.0.iter().zip(&other.0) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The words of a range; `None` if the range does not begin and end at word boundaries.
    #[inline]
    fn whole(&self, at: usize, len: usize) -> Option<&[AtomicU64]> {
        let aligned = at.is_multiple_of(WORD) && len.is_multiple_of(WORD);
        aligned.then(|| &self.0[at / WORD..(at + len) / WORD])
    }

    /// The address of the bytes from `at` on, if `len` bytes are worth the C library's copy.
    ///
    /// # Panics
    /// If they reach beyond the end.
    #[inline]
    fn long(&self, at: usize, len: usize) -> Option<*mut u8> {
        if !machine::COPIES || len < LONG {
            return None;
        }
        assert!(at <= N * WORD && len <= N * WORD - at, "bytes {at} + {len} of {}", N * WORD);
        let first = self.0.as_ptr().cast::<u8>().cast_mut();
        // SAFETY: `at` is at most the length of the words, so the address is in or just behind
        // them.
        Some(unsafe { first.add(at) })
    }

    /// Copies the bytes from `at` on to `to`.
    ///
    /// # Panics
    /// If they reach beyond the end.
    #[inline]
    pub fn read(&self, at: usize, to: &mut [u8]) {
        if let Some(from) = self.long(at, to.len()) {
            // SAFETY: both ranges are as long as `to`, and `to` is borrowed exclusively, so they do
            // not overlap.
            return unsafe { machine::copy(from, to.as_mut_ptr(), to.len()) };
        }
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
        if let Some(to) = self.long(at, from.len()) {
            // SAFETY: both ranges are as long as `from`; the words are interior-mutable and `from`
            // is not, so they do not overlap.
            return unsafe { machine::copy(from.as_ptr(), to, from.len()) };
        }
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
            // Other threads may change the other bytes of the word.
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

    /// Sets the bytes of `range` to zero.
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

/// Some [`Words`] side by side, the first at the beginning of a page.
///
/// A processor first compares addresses within their pages, so a load may wait for a store to
/// another page with the same offset. Buffers for direct transfers begin at pages too. Copies
/// between ranges with the same offset in their pages take as little as half the time.
pub struct PagedWords<const N: usize> {
    /// Spare words lie before the first and after the last.
    memory: Box<[Words<1>]>,
    first: usize,
    count: usize,
}

impl<const N: usize> PagedWords<N> {
    /// `count` of zeros, as [`Words::zeros`] makes them.
    ///
    /// # Panics
    /// If their size overflows.
    #[must_use]
    pub fn zeros(count: usize) -> Self {
        const SPARE: usize = PAGE / WORD;
        let memory = Words::<1>::zeros(count * N + if count == 0 { 0 } else { SPARE });
        let before = memory.as_ptr().addr().wrapping_neg() % PAGE / WORD;
        Self { memory, first: if count == 0 { 0 } else { before }, count }
    }
}

impl<const N: usize> Default for PagedWords<N> {
    fn default() -> Self {
        Self::zeros(0)
    }
}

impl<const N: usize> Deref for PagedWords<N> {
    type Target = [Words<N>];
    fn deref(&self) -> &[Words<N>] {
        let words = &self.memory[self.first..self.first + self.count * N];
        // SAFETY: a `Words<1>` is one word, and the slice just taken has `count * N` of them.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), self.count) }
    }
}

/// Number of bytes from which the C library's copy is faster.
const LONG: usize = 128;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod machine {
    use std::ffi::c_void;

    /// Whether there is [`copy`].
    pub(super) const COPIES: bool = true;

    type Memcpy = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;

    /// Copies bytes as relaxed atomic loads and stores of each would.
    ///
    /// # Safety
    /// Both ranges are valid for `len` bytes and do not overlap. Other threads may copy to and
    /// from the same memory by this function and by atomics at the same time.
    #[inline]
    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
        let memcpy: Memcpy = libc::memcpy;
        // SAFETY: the caller guarantees the ranges, and the registers are those of a C call. The
        // call is hidden from the compiler, so its effect is that of any code it could be: here
        // relaxed atomic loads and stores of each byte, some possibly twice. So there is no data
        // race with atomics.
        unsafe {
            core::arch::asm!(
                "call {memcpy}",
                memcpy = in(reg) memcpy,
                inout("rdi") to => _,
                inout("rsi") from => _,
                inout("rdx") len => _,
                clobber_abi("C"),
            );
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod machine {
    /// Whether there is [`copy`].
    pub(super) const COPIES: bool = false;

    /// Not called.
    pub(super) unsafe fn copy(_: *const u8, _: *mut u8, _: usize) {}
}

#[cfg(all(test, not(any(feature = "model-shuttle", feature = "model-loom"))))]
mod tests {
    use super::*;

    #[test]
    fn copies_match_a_plain_array() {
        let [words, copy] = &Words::<8>::zeros(2)[..] else { panic!("two were made") };
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
        copy.copy_from(words);
        copy.read(0, &mut all);
        assert_eq!(all, plain);
    }

    #[test]
    fn long_copies_change_only_their_range() {
        let words = &Words::<512>::zeros(1)[0];
        let bytes: Vec<u8> = (0..4096u32).map(|n| (n * 7 + n / 256) as u8).collect();
        for (at, len) in [(0, 4096), (8, 4000), (3, 600), (4096 - 513, 513), (1, LONG - 1)] {
            words.clear(0..4096);
            words.write(at, &bytes[..len]);
            let (mut part, mut all) = (vec![0; len], vec![0; 4096]);
            words.read(at, &mut part);
            words.read(0, &mut all);
            assert_eq!(part, bytes[..len]);
            assert!(all[..at].iter().chain(&all[at + len..]).all(|byte| *byte == 0));
        }
    }

    #[test]
    fn the_first_begins_at_a_page() {
        for count in [0, 1, 3] {
            let words = PagedWords::<8>::zeros(count);
            assert_eq!(words.len(), count);
            for (n, one) in words.iter().enumerate() {
                assert_eq!((std::ptr::from_ref(one).addr() - n * 64) % PAGE, 0);
                one.write(0, &[n as u8; 64]);
            }
            let mut all = [0; 64];
            for (n, one) in words.iter().enumerate() {
                one.read(0, &mut all);
                assert_eq!(all, [n as u8; 64]);
            }
        }
    }

    #[test]
    // Miri takes the short copy, which has another message.
    #[cfg_attr(not(miri), should_panic(expected = "bytes 8 + 4096"))]
    #[cfg_attr(miri, should_panic)]
    fn a_long_copy_beyond_the_end_is_refused() {
        Words::<512>::zeros(1)[0].write(8, &[1; 4096]);
    }

    #[test]
    fn concurrent_writes_within_a_word_lose_no_byte() {
        let words = &Words::<1>::zeros(1)[0];
        std::thread::scope(|scope| {
            for t in 0..4u8 {
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
