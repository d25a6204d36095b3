//! Errors of parts of a copy.

use nextent::Error;
use std::fmt;
use std::io;

/// Result of a part of a copy.
pub type Result<T> = std::result::Result<T, EntryError>;

/// Why an entry could not be copied, or could not be copied whole. The path is not part of it.
#[derive(Clone, Debug)]
pub struct EntryError {
    text: String,
    /// The copy cannot go on: the volume is full, or the image failed. A full directory or inode is
    /// not fatal.
    pub(crate) fatal: bool,
    /// The reader of the output has closed it, as `head` does: the copy ends without a message.
    pub(crate) unread: bool,
    /// The target cannot store an attribute, which was left out. The copy has not failed.
    pub(crate) note: bool,
    /// The system does not let this process read the file.
    pub(crate) denied: bool,
    /// The volume is full.
    pub(crate) full: bool,
}

impl EntryError {
    /// An error of this entry only.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            fatal: false,
            note: false,
            unread: false,
            denied: false,
            full: false,
        }
    }

    /// An error that ends the copy.
    pub fn fatal(text: impl Into<String>) -> Self {
        Self { fatal: true, ..Self::new(text) }
    }

    /// A note about an attribute that is left out; not a failure.
    pub fn note(text: impl Into<String>) -> Self {
        Self { note: true, ..Self::new(text) }
    }

    /// Whether it ends the copy: the volume is full, or the image failed. A full directory or inode
    /// ends nothing.
    pub fn is_fatal(&self) -> bool {
        self.fatal
    }

    /// Whether it is a note only: the target cannot store an attribute, which was left out. The
    /// copy has not failed.
    pub fn is_note(&self) -> bool {
        self.note
    }

    /// The worse of two results, or the first if they are equally bad.
    pub fn worse(first: Result<()>, second: Result<()>) -> Result<()> {
        let weight = |outcome: &Result<()>| match outcome {
            Ok(()) => 0,
            Err(trouble) if trouble.note => 1,
            Err(trouble) if !trouble.fatal => 2,
            Err(_) => 3,
        };
        if weight(&second) > weight(&first) { second } else { first }
    }

    /// The same error, as one of this entry only.
    pub fn mild(mut self) -> Self {
        (self.fatal, self.full) = (false, false);
        self
    }

    /// Puts the operation before the text.
    pub fn at(mut self, what: &str) -> Self {
        self.text = format!("{what}: {}", self.text);
        self
    }
}

impl std::error::Error for EntryError {}

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<io::Error> for EntryError {
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
        let denied = error.kind() == io::ErrorKind::PermissionDenied;
        Self { fatal: full, unread, denied, ..Self::new(text) }
    }
}

impl From<rustix::io::Errno> for EntryError {
    fn from(error: rustix::io::Errno) -> Self {
        io::Error::from(error).into()
    }
}

impl From<Error> for EntryError {
    fn from(error: Error) -> Self {
        let lost = matches!(error, Error::Aborted(_) | Error::ReadOnly);
        let full = error.is_full_volume();
        Self { fatal: lost || full, full, ..Self::new(error.to_string()) }
    }
}
