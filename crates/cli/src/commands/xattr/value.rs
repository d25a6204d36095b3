//! Values of extended attributes as text, in the forms of setfattr(1) and getfattr(1).
//!
//! | form | bytes |
//! |---|---|
//! | `0x` and hexadecimal digits | those bytes |
//! | `0s` and base64 | those bytes |
//! | `"TEXT"` | the text; `\\`, `\"` and `\` with three octal digits are escapes |
//! | anything else | the text as it is |

use std::fmt::Write;

/// How values are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Encoding {
    Text,
    Hex,
    Base64,
}

impl Encoding {
    /// Text if `value` is text without control characters, else base64.
    pub(super) fn fitting(value: &[u8]) -> Self {
        match std::str::from_utf8(value) {
            Ok(text) if !text.chars().any(char::is_control) => Self::Text,
            _ => Self::Base64,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Hex => "hex",
            Self::Base64 => "base64",
        }
    }

    /// `value` in the form that [`decode`] reads.
    pub(super) fn encode(self, value: &[u8]) -> String {
        match self {
            Self::Text => format!("\"{}\"", escaped(value)),
            Self::Hex => format!("0x{}", self.bare(value)),
            Self::Base64 => format!("0s{}", self.bare(value)),
        }
    }

    /// `value` without the marks of its form.
    pub(super) fn bare(self, value: &[u8]) -> String {
        match self {
            Self::Text => String::from_utf8_lossy(value).into_owned(),
            Self::Hex => value.iter().fold(String::new(), |mut text, byte| {
                // Writing to a string cannot fail.
                let _ = write!(text, "{byte:02x}");
                text
            }),
            Self::Base64 => base64(value),
        }
    }
}

/// Text with escapes for quotes, backslashes, control characters and bytes that are no text.
fn escaped(value: &[u8]) -> String {
    let mut text = String::new();
    for chunk in value.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => text.extend(['\\', c]),
                c if c.is_control() => c.to_string().bytes().for_each(|b| octal(&mut text, b)),
                c => text.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| octal(&mut text, *byte));
    }
    text
}

fn octal(text: &mut String, byte: u8) {
    // Writing to a string cannot fail.
    let _ = write!(text, "\\{byte:03o}");
}

/// The bytes of a value; none if digits or escapes are wrong.
pub(super) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    match text {
        [b'0', b'x' | b'X', digits @ ..] => from_hex(digits),
        [b'0', b's' | b'S', digits @ ..] => from_base64(digits),
        [b'"', inner @ .., b'"'] => from_escapes(inner),
        plain => Some(plain.to_vec()),
    }
}

fn from_escapes(mut text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    while let [first, rest @ ..] = text {
        if *first != b'\\' {
            bytes.push(*first);
            text = rest;
            continue;
        }
        match rest {
            [c @ (b'"' | b'\\'), rest @ ..] => {
                bytes.push(*c);
                text = rest;
            }
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                text = rest;
            }
            _ => return None,
        }
    }
    Some(bytes)
}

fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16).and_then(|n| u8::try_from(n).ok());
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => Some(value(*high)? << 4 | value(*low)?),
        _ => None,
    });
    pairs.collect()
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let byte = |n: usize| u32::from(group.get(n).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for n in 0..4 {
            let digit = nextent_num::to_usize(word >> (18 - 6 * n) & 63);
            text.push(if n <= group.len() { char::from(DIGITS[digit]) } else { '=' });
        }
    }
    text
}

fn from_base64(digits: &[u8]) -> Option<Vec<u8>> {
    let end = digits.iter().rposition(|digit| *digit != b'=').map_or(0, |at| at + 1);
    let (digits, padding) = digits.split_at(end);
    let mut bytes = Vec::new();
    let (mut word, mut bits) = (0u32, 0);
    for digit in digits {
        let value = DIGITS.iter().position(|known| known == digit)?;
        word = (word << 6 | u32::try_from(value).ok()?) & 0xffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(word >> bits & 0xff).ok()?);
        }
    }
    let whole = digits.len() % 4 != 1 && (padding.is_empty() || (end + padding.len()) % 4 == 0);
    (whole && padding.len() < 3).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_form_is_read_as_it_was(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            for form in [Encoding::Text, Encoding::Hex, Encoding::Base64] {
                prop_assert_eq!(decode(form.encode(&bytes).as_bytes()), Some(bytes.clone()));
            }
        }
    }

    #[test]
    fn forms_of_setfattr() {
        assert_eq!(decode(b"plain \\ text").unwrap(), b"plain \\ text");
        assert_eq!(decode(b"\"a\\\"\\\\\\012\"").unwrap(), b"a\"\\\n");
        assert_eq!(decode(b"0x00Ff").unwrap(), [0, 255]);
        assert_eq!(decode(b"0sAAEC").unwrap(), [0, 1, 2]);
        assert_eq!(decode(b"0sAA==").unwrap(), [0]);
        assert_eq!(decode(b"0sAA").unwrap(), [0]);
        for bad in ["0x0", "0xzz", "0sA", "0s*", "0sAAA==", "\"\\9\"", "0s===="] {
            assert_eq!(decode(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(Encoding::fitting("\u{e4}".as_bytes()), Encoding::Text);
        assert_eq!(Encoding::fitting(b"a\0"), Encoding::Base64);
    }
}
