//! Errors of making a file system.

use std::io;

use nextent_ondisk::{BlockNo, Corrupt};

use crate::error::{Cause, Error};

/// Why no file system was made. Each is one line that names the option or the place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MkfsError {
    /// An option is out of range, or options contradict each other.
    #[error("{0}")]
    Option(String),
    /// A feature that exists but that this program does not write.
    #[error("the feature {0} is not written by this program")]
    Unsupported(String),
    /// The device has no room for the metadata that was asked for.
    #[error("not enough space: {0}")]
    TooSmall(String),
    /// Reading or writing failed.
    #[error("{what} at block {block}: {source}")]
    Io {
        /// The operation.
        what: &'static str,
        /// The block of the new file system.
        block: BlockNo,
        /// The device's error.
        source: io::Error,
    },
    /// The planned superblock broke a rule of the format: a defect of the planner.
    #[error("planned layout is not valid: {0}")]
    Layout(#[from] Corrupt),
}

impl MkfsError {
    pub(super) fn option(text: impl Into<String>) -> Self {
        Self::Option(text.into())
    }
}

/// The meaning for a caller that adds a file to a volume that is being made.
impl From<MkfsError> for Error {
    fn from(error: MkfsError) -> Self {
        match error {
            MkfsError::TooSmall(_) => Self::NoSpace,
            MkfsError::Option(_) => Self::TooBig,
            MkfsError::Unsupported(text) => Self::unsupported(text),
            MkfsError::Layout(corrupt) => corrupt.into(),
            error @ MkfsError::Io { .. } => Self::Io(Cause::new(error)),
        }
    }
}
