//! Errors of the allocator.

use nextent_ondisk::Corrupt;

/// Result of an allocator operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A refused or failed allocation or release.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Reading a bitmap failed, or the journal stopped.
    #[error(transparent)]
    Store(#[from] nextent_store::Error),
    /// A bitmap, a descriptor or the request contradicts the volume.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// No block is available to this privilege. A commit may release freed blocks, see
    /// [`BlockAlloc::has_pending`](super::BlockAlloc::has_pending).
    #[error("no space left on the volume")]
    NoSpace,
    /// All inodes are in use.
    #[error("no inodes left on the volume")]
    NoInodes,
}

impl From<Error> for crate::error::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Store(error) => error.into(),
            Error::Corrupt(corrupt) => corrupt.into(),
            Error::NoSpace => Self::NoSpace,
            Error::NoInodes => Self::NoInodes,
        }
    }
}
