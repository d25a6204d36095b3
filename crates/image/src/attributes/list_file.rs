//! Files with one item a line.

use crate::escape;
use std::io;
use std::path::{Path, PathBuf};

/// Why a list of attributes is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttributesError {
    /// The file cannot be read.
    #[error("{}: {source}", escape::path(path))]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A line is not one of the format, or asks for what cannot be done.
    #[error("{}:{line}: {text}", escape::path(path))]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        text: String,
    },
    /// The file has no line of the format.
    #[error("{}: {text}", escape::path(path))]
    Whole {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        text: String,
    },
}

/// The largest file that is read, as a guard against devices and wrong files.
const MOST: u64 = 256 << 20;

/// A file and its contents.
pub(super) struct ListFile {
    pub(super) path: PathBuf,
    bytes: Vec<u8>,
}

impl ListFile {
    pub(super) fn read(path: &Path) -> Result<Self, AttributesError> {
        use io::Read as _;
        let read = || {
            let mut bytes = Vec::new();
            std::fs::File::open(path)?.take(MOST + 1).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes =
            read().map_err(|source| AttributesError::Read { path: path.to_owned(), source })?;
        let file = Self { path: path.to_owned(), bytes };
        match file.bytes.len() {
            0 => Err(file.whole("the file is empty")),
            len if nextent_num::to_u64(len) > MOST => Err(file.whole("the file is too large")),
            _ => Ok(file),
        }
    }

    /// Reads the file whose name is that of `path` and `suffix`; none if there is no such file, or
    /// if it is empty.
    pub(super) fn beside(path: &Path, suffix: &str) -> Result<Option<Self>, AttributesError> {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        match std::fs::metadata(&name) {
            Ok(meta) if meta.len() > 0 => Self::read(Path::new(&name)).map(Some),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(AttributesError::Read { path: name.into(), source }),
        }
    }

    /// Calls `take` with each line, without the end of the line. Its error is that of the line.
    pub(super) fn each_line(
        &self,
        mut take: impl FnMut(usize, &[u8]) -> Result<(), String>,
    ) -> Result<(), AttributesError> {
        for (line, text) in (1..).zip(self.bytes.split(|byte| *byte == b'\n')) {
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            if text.contains(&0) {
                return Err(self.line(line, "a zero byte: this is no text"));
            }
            take(line, text).map_err(|text| self.line(line, text))?;
        }
        Ok(())
    }

    /// Whether the first line that has text fulfils `is`.
    pub(super) fn begins(&self, is: impl Fn(&[u8]) -> bool) -> bool {
        let mut lines = self.bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        lines.find(|line| !line.is_empty()).is_some_and(is)
    }

    pub(super) fn line(&self, line: usize, text: impl Into<String>) -> AttributesError {
        AttributesError::Line { path: self.path.clone(), line, text: text.into() }
    }

    pub(super) fn whole(&self, text: impl Into<String>) -> AttributesError {
        AttributesError::Whole { path: self.path.clone(), text: text.into() }
    }
}

/// The words of a line, up to a comment.
pub(super) fn words(line: &[u8]) -> Vec<&[u8]> {
    let end = line.iter().position(|byte| *byte == b'#').unwrap_or(line.len());
    let words = line[..end].split(|byte| byte.is_ascii_whitespace());
    words.filter(|word| !word.is_empty()).collect()
}

/// A word as text, for messages.
pub(super) fn shown(word: &[u8]) -> String {
    word.escape_ascii().to_string()
}

/// A number in `radix`; `what` names it in messages.
pub(super) fn number(what: &str, word: &[u8], radix: u32) -> Result<u32, String> {
    let digits = word.iter().all(|byte| byte.is_ascii_hexdigit());
    let text = std::str::from_utf8(word).ok().filter(|_| digits);
    text.and_then(|text| u32::from_str_radix(text, radix).ok())
        .ok_or_else(|| format!("the {what} '{}' is not a number", shown(word)))
}

/// An owner. The largest number is not one: chown(2) takes it as "no change".
pub(super) fn owner(what: &str, word: &[u8]) -> Result<u32, String> {
    let number = number(what, word, 10)?;
    match number {
        u32::MAX => Err(format!("the {what} {number} is too large")),
        _ => Ok(number),
    }
}

/// Permission bits in octal.
pub(super) fn mode(word: &[u8]) -> Result<u16, String> {
    let bits = number("mode", word, 8)?;
    let bits = u16::try_from(bits).ok().filter(|bits| *bits <= 0o7777);
    bits.ok_or_else(|| format!("the mode '{}' has more bits than 7777", shown(word)))
}

/// The path `/NAME/NAME` of the image for a path of a list, which may begin without a slash.
pub(super) fn path(word: &[u8]) -> Result<Vec<u8>, String> {
    let mut path = Vec::with_capacity(word.len() + 1);
    for part in word.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")) {
        if part == b".." {
            return Err(format!("the path '{}' leads out by '..'", shown(word)));
        }
        if part.len() > NAME_MAX {
            return Err(format!("a name in the path has more than {NAME_MAX} bytes"));
        }
        path.push(b'/');
        path.extend_from_slice(part);
    }
    if path.is_empty() {
        path.push(b'/');
    }
    Ok(path)
}

/// The longest name of ext4, in bytes.
pub(super) const NAME_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned() {
        for (word, want) in [
            (&b"/"[..], Some(&b"/"[..])),
            (b"", Some(b"/")),
            (b".", Some(b"/")),
            (b"a/b", Some(b"/a/b")),
            (b"//a/./b//", Some(b"/a/b")),
            (b"/a/../b", None),
            (b"..", None),
        ] {
            assert_eq!(path(word).ok().as_deref(), want, "{}", shown(word));
        }
        assert!(path(&[b'a'; 256]).is_err());
    }

    #[test]
    fn numbers_are_digits_only() {
        assert_eq!(number("n", b"17", 8), Ok(15));
        for bad in [&b"+1"[..], b"-1", b"", b"8", b"1 ", b"4294967296000"] {
            assert!(number("n", bad, 8).is_err(), "{}", shown(bad));
        }
        assert!(owner("owner", b"4294967295").is_err());
        assert_eq!(mode(b"7777"), Ok(0o7777));
        assert!(mode(b"10000").is_err());
    }
}
