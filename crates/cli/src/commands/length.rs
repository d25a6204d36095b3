//! Lengths as in truncate(1): `SIZE`, or `SIZE` after one of `+ - < > / %`, which makes it depend
//! on the old length.

use std::str::FromStr;

/// The new length of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// So many bytes.
    Exactly(u64),
    /// Longer by so many bytes.
    Longer(u64),
    /// Shorter by so many bytes, at least empty.
    Shorter(u64),
    AtMost(u64),
    AtLeast(u64),
    /// Rounded down to a multiple.
    Down(u64),
    /// Rounded up to a multiple.
    Up(u64),
}

impl FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim_ascii_start();
        let bad = || format!("'{text}' is not a size: [+-<>/%] and a number, then k, m, g or t");
        let (kind, rest): (fn(u64) -> Self, &str) = match text.as_bytes().first() {
            Some(b'+') => (Self::Longer, &text[1..]),
            Some(b'-') => (Self::Shorter, &text[1..]),
            Some(b'<') => (Self::AtMost, &text[1..]),
            Some(b'>') => (Self::AtLeast, &text[1..]),
            Some(b'/') => (Self::Down, &text[1..]),
            Some(b'%') => (Self::Up, &text[1..]),
            _ => (Self::Exactly, text),
        };
        let rest = if text.starts_with(['+', '-']) { rest } else { rest.trim_ascii_start() };
        match kind(bytes(rest).ok_or_else(bad)?) {
            Self::Down(0) | Self::Up(0) => Err(format!("'{text}': division by zero")),
            length => Ok(length),
        }
    }
}

/// A number of bytes with the units of truncate(1): `K` or `KiB` is 1024, `KB` or `KD` 1000.
fn bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number: u64 = digits.parse().ok()?;
    let mut letters = unit.chars();
    let power = match letters.next() {
        None => 0,
        Some('k' | 'K') => 1,
        Some('m' | 'M') => 2,
        Some('g' | 'G') => 3,
        Some('t' | 'T') => 4,
        Some('P') => 5,
        Some('E') => 6,
        Some(_) => return None,
    };
    let base: u64 = match letters.as_str() {
        "" | "iB" => 1024,
        "B" | "D" => 1000,
        _ => return None,
    };
    number.checked_mul(base.checked_pow(power)?)
}

impl Length {
    /// The new length of a file that has `old` bytes; none on overflow.
    pub(crate) fn of(self, old: u64) -> Option<u64> {
        match self {
            Self::Exactly(size) => Some(size),
            Self::Longer(more) => old.checked_add(more),
            Self::Shorter(less) => Some(old.saturating_sub(less)),
            Self::AtMost(most) => Some(old.min(most)),
            Self::AtLeast(least) => Some(old.max(least)),
            Self::Down(unit) => Some(old / unit * unit),
            Self::Up(unit) => old.checked_next_multiple_of(unit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_truncate() {
        let of = |text: &str, old| text.parse::<Length>().map(|length| length.of(old));
        for (text, old, new) in [
            ("100", 7, 100),
            ("+4k", 100_000, 104_096),
            ("-4k", 100_000, 95_904),
            ("-1m", 100, 0),
            ("<50", 100, 50),
            ("<50", 20, 20),
            (">50", 20, 50),
            (">50", 100, 100),
            ("/4k", 10_000, 8192),
            ("%4k", 10_000, 12_288),
            ("%4k", 8192, 8192),
            ("10KB", 7, 10_000),
            ("10kD", 7, 10_000),
            ("+1MiB", 1, 1_048_577),
            ("1P", 1, 1 << 50),
            ("< 50", 100, 50),
            (" +5", 1, 6),
            ("010", 1, 10),
        ] {
            assert_eq!(of(text, old), Ok(Some(new)), "{text} of {old}");
        }
        assert_eq!(of("+1", u64::MAX), Ok(None));
        for bad in [
            "", "+", "++1", "+-1", "x", "/0", "%0", "- 1", "1b", "1s", "0x1", "<+1", "1kib", "1Z",
            "16E",
        ] {
            assert!(of(bad, 1).is_err(), "{bad}");
        }
    }
}
