//! What can go wrong below the file system.

use nextent_ondisk::BlockNo;
use nextent_sync::Arc;
use std::io;

/// Result of a store operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed read, write, commit or recovery. Cheap to clone: an abort hands its
/// first cause to every later caller.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error("{op} of block {block} failed: {source}")]
    Io {
        /// What was attempted.
        op: &'static str,
        /// First block of the access.
        block: BlockNo,
        /// The device's error.
        source: Arc<io::Error>,
    },
    /// The journal stopped after an error; nothing can be changed any more.
    #[error("journal aborted: {0}")]
    Aborted(Arc<str>),
    /// One operation needs more of the journal than a transaction may have.
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
        /// What is wrong with it.
        what: String,
    },
    /// The journal uses something that is not supported.
    #[error("journal: {0}")]
    Unsupported(String),
    /// The volume was opened without the right to write.
    #[error("read-only")]
    ReadOnly,
}

impl Error {
    pub(crate) fn io(op: &'static str, block: BlockNo, source: io::Error) -> Self {
        Self::Io { op, block, source: Arc::new(source) }
    }
}
