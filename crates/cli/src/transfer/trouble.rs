//! Errors of parts of a copy.

use nextent::Error;
use std::fmt;
use std::io;

/// Result of a part of a copy.
pub(crate) type Result<T> = std::result::Result<T, Trouble>;

/// An error of a part of a copy, without the name of the file.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    text: String,
    /// The copy cannot go on: the volume is full, or the image failed. A full directory or inode is
    /// not fatal.
    pub(crate) fatal: bool,
    /// The reader of the output has closed it, as `head` does: the copy ends without a message.
    pub(crate) unread: bool,
    /// The target cannot store an attribute, which was left out. The copy has not failed.
    pub(crate) note: bool,
}

impl Trouble {
    /// An error of this entry only.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), fatal: false, note: false, unread: false }
    }

    /// An error that ends the copy.
    pub(crate) fn fatal(text: impl Into<String>) -> Self {
        Self { text: text.into(), fatal: true, note: false, unread: false }
    }

    /// A note about an attribute that is left out; not a failure.
    pub(crate) fn note(text: impl Into<String>) -> Self {
        Self { text: text.into(), fatal: false, note: true, unread: false }
    }

    /// The worse of two results, or the first if they are equally bad.
    pub(crate) fn worse(first: Result<()>, second: Result<()>) -> Result<()> {
        let weight = |outcome: &Result<()>| match outcome {
            Ok(()) => 0,
            Err(trouble) if trouble.note => 1,
            Err(trouble) if !trouble.fatal => 2,
            Err(_) => 3,
        };
        if weight(&second) > weight(&first) { second } else { first }
    }

    /// The same error, as one of this entry only.
    pub(crate) fn mild(mut self) -> Self {
        self.fatal = false;
        self
    }

    /// Puts the operation before the text.
    pub(crate) fn at(mut self, what: &str) -> Self {
        self.text = format!("{what}: {}", self.text);
        self
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        let full = matches!(
            error.kind(),
            io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::ReadOnlyFilesystem
        );
        // Without the number: `File exists (os error 17)`.
        let text = error.to_string();
        let text = text.split(" (os error").next().unwrap_or_default().to_owned();
        let unread = error.kind() == io::ErrorKind::BrokenPipe;
        Self { text, fatal: full, note: false, unread }
    }
}

impl From<rustix::io::Errno> for Trouble {
    fn from(error: rustix::io::Errno) -> Self {
        io::Error::from(error).into()
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        let lost = matches!(error, Error::Aborted(_) | Error::ReadOnly);
        let fatal = lost || error.is_full_volume();
        Self { text: error.to_string(), fatal, note: false, unread: false }
    }
}
