//! Numbers in fields of a tar header, in all forms that writers use.
//!
//! | form | bytes | written by |
//! |---|---|---|
//! | octal | digits, with blanks before and a blank or zero byte after | all |
//! | blank | only blanks and zero bytes: 0, as in GNU tar | old and minimal writers |
//! | base 256 | the first bit marks the form, the rest is two's complement | GNU tar, star |
//!
//! Sources: POSIX 1003.1 "pax", the manuals of GNU tar ("Extensions") and star. A number that the
//! caller's type cannot hold is an error, and is never truncated.

use super::{EntryError, Result};

/// The number in `field`, called `name` in messages.
///
/// # Errors
/// The field has no number, or one that `N` cannot hold.
pub(super) fn header_number<N: TryFrom<i128>>(field: &[u8], name: &str) -> Result<N> {
    let shown = || field.escape_ascii();
    let found = parse(field)
        .ok_or_else(|| EntryError::new(format!("its {name} is not a number: '{}'", shown())))?;
    N::try_from(found).map_err(|_| does_not_fit(name, found))
}

/// The error for a number that an inode cannot hold.
pub(super) fn does_not_fit(name: &str, number: impl std::fmt::Display) -> EntryError {
    EntryError::new(format!("its {name} {number} does not fit; left out"))
}

fn parse(field: &[u8]) -> Option<i128> {
    if field.first()? & 0x80 != 0 { base_256(field) } else { octal(field) }
}

/// Two's complement in all bits except the first, which marks the form.
fn base_256(field: &[u8]) -> Option<i128> {
    let (first, rest) = field.split_first()?;
    let sign = if first & 0x40 != 0 { -0x40 } else { 0 };
    let start = sign + i128::from(first & 0x3f);
    rest.iter()
        .try_fold(start, |number, byte| number.checked_mul(256)?.checked_add(i128::from(*byte)))
}

/// Digits up to the first zero byte; the rest is ignored, as by GNU tar.
fn octal(field: &[u8]) -> Option<i128> {
    let text = field.split(|byte| *byte == 0).next()?.trim_ascii();
    if text.is_empty() {
        return Some(0);
    }
    let (sign, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let number = digits.iter().try_fold(0i128, |number, byte| match byte {
        b'0'..=b'7' => number.checked_mul(8)?.checked_add(i128::from(byte - b'0')),
        _ => None,
    });
    number.filter(|_| !digits.is_empty()).map(|number| sign * number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_are_read() {
        for (field, number) in [
            (&b"0000644\0"[..], 0o644),
            (b"   644 \0", 0o644),
            (b"644     ", 0o644),
            (b"777777777777", 0o777_777_777_777),
            (b"\0\0\0\0\0\0\0\0", 0),
            (b"        ", 0),
            (b"      \0\0", 0),
            (b"\x80\0\0\0\0\0\x01\0", 256),
            (b"\xff\xff\xff\xff\xff\xff\xff\xfe", -2),
            (b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 0xffff_ffff_ffff_ffff),
            (b"-0000001\0", -1),
            (b"0000644\0garbage", 0o644),
        ] {
            assert_eq!(header_number::<i128>(field, "field").ok(), Some(number), "{field:?}");
        }
        for bad in [&b"8\0"[..], b"12a4\0", b"hello\0\0\0", b"- \0"] {
            assert!(header_number::<i128>(bad, "field").is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_number_that_does_not_fit_is_refused() {
        let big = b"\x80\0\0\x01\0\0\0\0";
        assert_eq!(header_number::<u64>(big, "owner").ok(), Some(1 << 32));
        let refused = header_number::<u32>(big, "owner").expect_err("it has 33 bits");
        assert_eq!(refused.to_string(), "its owner 4294967296 does not fit; left out");
        assert!(!refused.fatal);
        assert!(header_number::<u64>(b"\xff\xff\xff\xff\xff\xff\xff\xff", "size").is_err());
    }
}
