//! Why a part of a copy failed, and whether the rest makes sense.

use nextent::Error;
use std::fmt;
use std::io;

/// Result of a part of a copy.
pub(crate) type Result<T> = std::result::Result<T, Trouble>;

/// A line for the user, without the name of the file.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    text: String,
    /// Nothing after it can succeed: the volume is full or the image is lost. What only one file,
    /// directory or inode has no room for is the trouble of that one.
    pub(crate) fatal: bool,
    /// Whoever read the output has enough, as `head`: the copy ends without a word.
    pub(crate) unread: bool,
    /// Something that the target has no place for was left out: the user is told, the copy has not
    /// failed.
    pub(crate) note: bool,
}

impl Trouble {
    /// Only this entry fails.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), fatal: false, note: false, unread: false }
    }

    /// The whole copy ends.
    pub(crate) fn fatal(text: impl Into<String>) -> Self {
        Self { text: text.into(), fatal: true, note: false, unread: false }
    }

    /// No failure: something is left out.
    pub(crate) fn note(text: impl Into<String>) -> Self {
        Self { text: text.into(), fatal: false, note: true, unread: false }
    }

    /// The worse of two outcomes; the first of two that are as bad.
    pub(crate) fn worse(first: Result<()>, second: Result<()>) -> Result<()> {
        let weight = |outcome: &Result<()>| match outcome {
            Ok(()) => 0,
            Err(trouble) if trouble.note => 1,
            Err(trouble) if !trouble.fatal => 2,
            Err(_) => 3,
        };
        if weight(&second) > weight(&first) { second } else { first }
    }

    /// Only this entry, whatever was thought before.
    pub(crate) fn mild(mut self) -> Self {
        self.fatal = false;
        self
    }

    /// Says first what was being done.
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
        // `File exists (os error 17)`: the number says nothing to people.
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
