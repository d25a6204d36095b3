//! Errors below the file system.

use nextent_ondisk::BlockNo;
use nextent_sync::Arc;
use std::io;

/// Result of a store operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed read, write, commit or recovery. Cheap to clone: after an abort every caller gets the
/// first cause.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error("{op} of block {block} failed: {source}")]
    Io {
        /// The operation.
        op: &'static str,
        /// First block of the access.
        block: BlockNo,
        /// The device's error.
        source: Arc<io::Error>,
    },
    /// The journal stopped after an error and refuses changes.
    #[error("journal aborted: {0}")]
    Aborted(Arc<str>),
    /// One operation needs more of the journal than a transaction has.
    #[error("operation needs {wanted} journal blocks, a transaction has {limit}")]
    TooBig {
        /// Credits asked for.
        wanted: u32,
        /// Most credits a handle can have.
        limit: u32,
    },
    /// The journal's own blocks are damaged.
    #[error("journal block {block}: {what}")]
    Corrupt {
        /// Block of the journal, counted from its start.
        block: u64,
        /// The damage, as a predicate of the block.
        what: String,
    },
    /// The journal has an unknown feature, or an unsupported size.
    #[error("journal: {0}")]
    Unsupported(String),
    /// The store was opened for reading only, or is closed.
    #[error("read-only")]
    ReadOnly,
}

impl Error {
    pub(crate) fn io(op: &'static str, block: BlockNo, source: io::Error) -> Self {
        Self::Io { op, block, source: Arc::new(source) }
    }
}
