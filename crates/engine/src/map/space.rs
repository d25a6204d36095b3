//! What a map asks of the block allocator.

use crate::error::Result;
use nextent_ondisk::{BlockNo, InodeNo};
use nextent_store::Handle;

/// What blocks are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file's data.
    Data,
    /// A node of a map.
    Metadata,
}

/// How deep into the reserves an allocation may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privilege {
    /// Not at all.
    User,
    /// Into root's share.
    Root,
    /// Into the pool for what must not fail.
    Reserved,
}

/// An allocation wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockRequest {
    /// Best place.
    pub(crate) goal: Option<BlockNo>,
    /// Blocks wanted.
    pub(crate) want: u32,
    /// Fewest blocks of use.
    pub(crate) min: u32,
    /// Use.
    pub(crate) kind: Kind,
    /// Reserves allowed.
    pub(crate) privilege: Privilege,
    /// The file.
    pub(crate) ino: InodeNo,
}

/// Contiguous blocks of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRun {
    /// The first.
    pub(crate) start: BlockNo,
    /// How many.
    pub(crate) len: u32,
}

/// Source of blocks for nodes, and where all freed blocks go.
pub(crate) trait Space: Sync {
    /// Contiguous blocks, at least `min` and at most `want`.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`], or what reading bitmaps says.
    fn allocate(&self, h: &Handle<'_>, request: &BlockRequest) -> Result<BlockRun>;

    /// Gives `len` blocks from `start` back; for metadata the journal is told to
    /// forget each block.
    ///
    /// # Errors
    /// What reading bitmaps says, and blocks that are free already.
    fn free(&self, h: &Handle<'_>, start: BlockNo, len: u32, kind: Kind) -> Result<()>;
}
