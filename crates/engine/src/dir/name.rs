//! File names: the one place that says which bytes may be one.

use super::DirError;

/// The longest name, in bytes.
pub(crate) const MAX_NAME: usize = 255;

/// A checked file name: 1 to 255 bytes, none of them `/` or NUL unless it is encrypted. `.` and
/// `..` are names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Checks `bytes`.
    ///
    /// # Errors
    /// [`DirError::NameTooLong`] above 255 bytes, [`DirError::NameInvalid`] if it is empty or
    /// holds `/` or NUL.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, DirError> {
        if bytes.len() > MAX_NAME {
            return Err(DirError::NameTooLong { len: bytes.len() });
        }
        if bytes.is_empty() || bytes.iter().any(|&b| b == b'/' || b == 0) {
            return Err(DirError::NameInvalid);
        }
        Ok(Self(bytes))
    }

    /// The name of an entry of an encrypted directory, which may have any bytes.
    ///
    /// # Errors
    /// [`DirError::NameTooLong`] above 255 bytes, [`DirError::NameInvalid`] if it is empty.
    pub(crate) fn encrypted(bytes: &'a [u8]) -> Result<Self, DirError> {
        match bytes.len() {
            0 => Err(DirError::NameInvalid),
            len if len > MAX_NAME => Err(DirError::NameTooLong { len }),
            _ => Ok(Self(bytes)),
        }
    }

    /// The bytes.
    #[must_use]
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Whether it is `.` or `..`.
    #[must_use]
    pub(crate) fn is_dots(self) -> bool {
        matches!(self.0, b"." | b"..")
    }

    /// The name, unless it is `.` or `..`, which cannot be made or removed by name.
    pub(super) fn ordinary(self) -> Result<Self, DirError> {
        if self.is_dots() { Err(DirError::NameInvalid) } else { Ok(self) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in [&b"a"[..], b".", b"..", b"...", b"\xff\xfe", &[b'x'; 255]] {
            assert_eq!(Name::new(good).unwrap().bytes(), good);
        }
        assert!(matches!(Name::new(&[b'x'; 256]), Err(DirError::NameTooLong { len: 256 })));
        for bad in [&b""[..], b"/", b"a/b", b"a\0"] {
            assert!(matches!(Name::new(bad), Err(DirError::NameInvalid)));
        }
        assert!(Name::new(b"..").unwrap().ordinary().is_err());
        assert_eq!(Name::encrypted(b"a/\0").unwrap().bytes(), b"a/\0");
        assert!(Name::encrypted(b"").is_err() && Name::encrypted(&[1; 256]).is_err());
    }
}
