//! Requests to the block allocator, and the runs of blocks that it returns.

use nextent_ondisk::{BlockNo, InodeNo};

/// The use of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// A file's data.
    Data,
    /// Space for a file's data, preallocated.
    Unwritten,
    /// Blocks that the journal logs: directories, nodes of maps, attributes.
    Metadata,
}

/// The reserves that an allocation may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// None.
    User,
    /// Root's reserve.
    Root,
    /// Root's reserve, and the pool for operations that must not fail.
    Reserved,
}

/// A request to allocate contiguous blocks.
#[derive(Clone, Copy, Debug)]
pub struct BlockRequest {
    /// Preferred block: the next one of a file that continues, or a hint where to search.
    pub goal: Option<BlockNo>,
    /// Most blocks to allocate, at least 1.
    pub want: u32,
    /// Fewest blocks to allocate, from 1 to `want`. No run is longer than a region: 8192 clusters,
    /// or fewer on a small volume, but at least 512 if the groups have so many.
    pub min: u32,
    /// The use of the blocks.
    #[cfg_attr(
        not(any(test, feature = "lab")),
        expect(dead_code, reason = "replacements read it")
    )]
    pub kind: BlockKind,
    /// The reserves that the request may use.
    pub privilege: Privilege,
    /// The file, for replacements and errors.
    pub ino: InodeNo,
}

impl BlockRequest {
    /// A request for 1 to `want` blocks for the data of a file.
    #[must_use]
    pub fn data(ino: InodeNo, goal: Option<BlockNo>, want: u32, privilege: Privilege) -> Self {
        Self { goal, want, min: 1, kind: BlockKind::Data, privilege, ino }
    }
}

/// Contiguous blocks of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// The first block.
    pub start: BlockNo,
    /// The number of blocks.
    pub len: u32,
}

impl BlockRun {
    /// The block after the last.
    #[must_use]
    pub fn end(&self) -> BlockNo {
        BlockNo(self.start.0 + u64::from(self.len))
    }
}
