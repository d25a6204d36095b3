//! Errors of directory operations.

use nextent_ondisk::Corrupt;

/// Why a directory operation failed. It has changed nothing unless its documentation says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum DirError {
    /// The directory's blocks break a rule of the format.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The name is longer than 255 bytes.
    #[error("file name of {len} bytes is too long")]
    NameTooLong {
        /// Its length.
        len: usize,
    },
    /// The name is empty, holds `/` or NUL, or is one that may not be given.
    #[error("invalid file name")]
    NameInvalid,
    /// The name is there already.
    #[error("file exists")]
    Exists,
    /// The name is not there.
    #[error("no such file or directory")]
    NotFound,
    /// The index has as many levels as the format allows and no room.
    #[error("directory index is full")]
    IndexFull,
}

impl From<DirError> for crate::Error {
    fn from(error: DirError) -> Self {
        match error {
            DirError::Corrupt(corrupt) => corrupt.into(),
            DirError::NameTooLong { .. } => Self::NameTooLong,
            DirError::NameInvalid => Self::Invalid,
            DirError::Exists => Self::Exists,
            DirError::NotFound => Self::NotFound,
            DirError::IndexFull => Self::DirectoryFull,
        }
    }
}
