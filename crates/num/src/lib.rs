#![doc = include_str!("../README.md")]
//!
//! # Design
//!
//! Integer conversions that never truncate a number silently or change its sign.
//!
//! `as` does both silently, so the crates that read images and serve callers do not use it (`cargo
//! xtask tidy` checks this). This crate has the conversions that `from` and `try_from` lack:
//!
//! | from | to | function | if the number does not fit |
//! |---|---|---|---|
//! | `usize` | `u64` | [`to_u64`] | always fits |
//! | `u8` to `u64` | `usize` | [`to_usize`]; in constants [`usize_of`], [`usize_of_u32`], [`usize_of_u16`] | always fits |
//! | `u64` | `u32` | [`low_half`] | drops the upper half, which is another number |
//! | any | any | [`must_fit`] | panics: an internal error, not a bad image |
//! | `f64` | `u64` | [`whole_part`] | saturates |
//!
//! Never use [`must_fit`] for a number from a caller or from disk. Use `try_from` and return a
//! specific error.

#![forbid(unsafe_code)]
#![no_std]

// On a 32-bit target the conversions to `usize` would truncate.
const _: () = assert!(usize::BITS == 64, "nextent needs addresses of 64 bits");

/// A length or an index as a `u64`.
#[inline(always)]
#[must_use]
pub const fn to_u64(n: usize) -> u64 {
    n as u64
}

/// An integer of at most 64 bits as a length or an index.
#[inline(always)]
#[must_use]
pub fn to_usize(n: impl Into<u64>) -> usize {
    usize_of(n.into())
}

/// [`to_usize`] for constants.
#[inline(always)]
#[must_use]
pub const fn usize_of(n: u64) -> usize {
    n as usize
}

/// [`to_usize`] for constants of type `u32`.
#[inline(always)]
#[must_use]
pub const fn usize_of_u32(n: u32) -> usize {
    n as usize
}

/// [`to_usize`] for constants of type `u16`.
#[inline(always)]
#[must_use]
pub const fn usize_of_u16(n: u16) -> usize {
    n as usize
}

/// The lower 32 bits of a word that packs two numbers.
#[inline(always)]
#[must_use]
pub const fn low_half(word: u64) -> u32 {
    word as u32
}

/// Converts `n` to a type that the caller knows to hold it.
///
/// # Panics
///
/// If `n` does not fit.
///
/// # Examples
///
/// ```
/// let group: u32 = nextent_num::must_fit(7_u64);
/// assert_eq!(group, 7);
/// ```
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

/// The whole part of `n`: 0 if it is negative or NaN, `u64::MAX` if it is larger.
#[inline]
#[must_use]
pub fn whole_part(n: f64) -> u64 {
    n as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fitting_numbers_are_unchanged() {
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
    fn a_number_that_does_not_fit_is_named() {
        let _: u32 = must_fit(1_u64 << 32);
    }

    #[test]
    #[should_panic(expected = "-1 does not fit u64")]
    fn a_negative_number_does_not_fit_u64() {
        let _: u64 = must_fit(-1_i64);
    }

    #[test]
    fn the_low_half_ignores_the_high_half() {
        assert_eq!([low_half(u64::MAX << 32), low_half(7 << 32 | 9)], [0, 9]);
    }

    #[test]
    fn whole_parts_saturate() {
        assert_eq!([whole_part(2.9), whole_part(-1.0), whole_part(f64::NAN)], [2, 0, 0]);
        assert_eq!(whole_part(1e30), u64::MAX);
    }
}
