//! Escapes names for messages, so that no name acts on a terminal or breaks a line.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

/// A name as part of a line: control characters and bytes that are not UTF-8 are escaped. Escaping
/// the result again changes nothing.
pub fn name(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        escape(chunk.valid(), &mut shown);
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// The name of one directory entry: as [`name`], with slashes escaped too, so that it cannot be
/// taken for a path.
pub fn component(bytes: &[u8]) -> String {
    match bytes {
        b"." => "\\x2e".to_owned(),
        b".." => "\\x2e\\x2e".to_owned(),
        _ => name(bytes).replace('/', "\\x2f"),
    }
}

/// A path, escaped like a [`name`].
pub fn path(path: impl AsRef<OsStr>) -> String {
    name(path.as_ref().as_bytes())
}

/// Escapes a text so that it stays on one line, whatever names are in it. Every message on standard
/// error passes through here.
pub fn line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    escape(text.trim_end(), &mut shown);
    shown
}

fn escape(text: &str, shown: &mut String) {
    for c in text.chars() {
        if is_obeyed(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
}

/// Whether a terminal acts on `c`: control characters (also the C1 set), line ends, and characters
/// that change the direction of text.
fn is_obeyed(c: char) -> bool {
    let direction = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(c, '\u{2066}'..='\u{2069}');
    c.is_control() || direction || matches!(c, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_stay_on_a_line() {
        assert_eq!(name(b"a\nb\xff\xc3\xa4"), "a\\nb\\xff\u{e4}");
        assert_eq!(name(b"\x1b[2J\x7f\xc2\x9b1m"), "\\u{1b}[2J\\u{7f}\\u{9b}1m");
        assert_eq!(name("\u{202e}gpj.exe".as_bytes()), "\\u{202e}gpj.exe");
        assert_eq!(line("a\tb\r\nc\n"), "a\\tb\\r\\nc");
        assert_eq!(line(&name(b"\x1b\xff\\")), name(b"\x1b\xff\\"));
    }

    #[test]
    fn a_component_cannot_be_taken_for_a_path() {
        assert_eq!(component(b"../x"), "..\\x2fx");
        assert_eq!(component(b".."), "\\x2e\\x2e");
        assert_eq!(component(b"..x\n"), "..x\\n");
    }
}
