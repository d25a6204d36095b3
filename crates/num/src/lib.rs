//! Conversions between integers that neither cut a number nor change its sign.
//!
//! `as` does both without a word, so the crates that read images and serve callers do without it
//! (`cargo xtask tidy` checks). What `from` and `try_from` lack is here:
//!
//! | from, to | function | where the number does not fit |
//! |---|---|---|
//! | `usize` to `u64` | [`to_u64`] | always fits |
//! | `u8` to `u64`, to `usize` | [`to_usize`]; for constants [`usize_of`], [`usize_of_u32`], [`usize_of_u16`] | always fits |
//! | `u64` to `u32` | [`low_half`] | the upper half is another number |
//! | any to any, known to fit | [`must_fit`] | panics: a fault in memory, not on disk |
//! | `f64` to `u64` | [`whole_part`] | the nearest number |
//!
//! A number from a caller or from disk is no case for [`must_fit`]: `try_from` it, and say which
//! error it is.

#![forbid(unsafe_code)]
#![no_std]

// 32-bit targets would cut lengths and offsets that are checked as 64 bits.
const _: () = assert!(usize::BITS == 64, "nextent needs addresses of 64 bits");

/// A length or an index as a number of 64 bits.
#[inline(always)]
#[must_use]
pub const fn to_u64(n: usize) -> u64 {
    n as u64
}

/// A number of at most 64 bits as a length or an index.
#[inline(always)]
#[must_use]
pub fn to_usize(n: impl Into<u64>) -> usize {
    usize_of(n.into())
}

/// [`to_usize`] where only constants can be made.
#[inline(always)]
#[must_use]
pub const fn usize_of(n: u64) -> usize {
    n as usize
}

/// As [`usize_of`].
#[inline(always)]
#[must_use]
pub const fn usize_of_u32(n: u32) -> usize {
    n as usize
}

/// As [`usize_of`].
#[inline(always)]
#[must_use]
pub const fn usize_of_u16(n: u16) -> usize {
    n as usize
}

/// The lower 32 bits of a word that holds two numbers.
#[inline(always)]
#[must_use]
pub const fn low_half(word: u64) -> u32 {
    word as u32
}

/// `n` as another type, which the caller knows to hold it.
///
/// # Panics
/// If it does not.
#[inline(always)]
#[must_use]
#[track_caller]
pub fn must_fit<T, N: TryInto<T> + Copy + core::fmt::Display>(n: N) -> T {
    match n.try_into() {
        Ok(fits) => fits,
        Err(_) => does_not_fit(&n, core::any::type_name::<T>()),
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn does_not_fit(n: &dyn core::fmt::Display, name: &str) -> ! {
    panic!("{n} does not fit {name}")
}

/// A number's whole part: 0 for what is negative or no number, the largest for what is larger.
#[inline]
#[must_use]
pub fn whole_part(n: f64) -> u64 {
    n as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_kept() {
        assert_eq!(to_u64(usize::MAX), u64::MAX);
        assert_eq!(to_usize(u64::MAX), usize::MAX);
        assert_eq!(
            [to_usize(7_u8), to_usize(u16::MAX), to_usize(u32::MAX)],
            [7, 65535, 0xffff_ffff]
        );
        assert_eq!([usize_of(7), usize_of_u32(u32::MAX), usize_of_u16(9)], [7, 0xffff_ffff, 9]);
        assert_eq!(must_fit::<u32, u64>(0xffff_ffff), u32::MAX);
        assert_eq!(must_fit::<i64, u64>(i64::MAX.unsigned_abs()), i64::MAX);
    }

    #[test]
    #[should_panic(expected = "4294967296 does not fit u32")]
    fn what_does_not_fit_is_named() {
        let _: u32 = must_fit(1_u64 << 32);
    }

    #[test]
    #[should_panic(expected = "-1 does not fit u64")]
    fn signs_are_not_lost() {
        let _: u64 = must_fit(-1_i64);
    }

    #[test]
    fn halves_are_told_apart() {
        assert_eq!([low_half(u64::MAX << 32), low_half(7 << 32 | 9)], [0, 9]);
    }

    #[test]
    fn whole_parts_saturate() {
        assert_eq!([whole_part(2.9), whole_part(-1.0), whole_part(f64::NAN)], [2, 0, 0]);
        assert_eq!(whole_part(1e30), u64::MAX);
    }
}
