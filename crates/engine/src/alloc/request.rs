//! What is asked of the block allocator and what it answers.

use nextent_ondisk::{BlockNo, InodeNo};

/// What blocks are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// A file's data.
    Data,
    /// Room for a file's data, asked for before there is any.
    Unwritten,
    /// Anything the journal logs: directories, nodes of maps, attributes.
    Metadata,
}

/// How deep into the reserves an allocation may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// Not at all.
    User,
    /// Into root's share.
    Root,
    /// Into root's share and the pool for what must not fail.
    Reserved,
}

/// An allocation wanted.
#[derive(Clone, Copy, Debug)]
pub struct BlockRequest {
    /// Best place: exact when the file goes on there, else a neighbourhood.
    pub goal: Option<BlockNo>,
    /// Blocks wanted, at least 1.
    pub want: u32,
    /// Fewest blocks of use, from 1 to `want`. No run is longer than a region: 8192 clusters,
    /// on small volumes less, but never under 512 where a group has so many.
    pub min: u32,
    /// Use.
    #[cfg_attr(not(feature = "lab"), expect(dead_code))] // only a replacement asks
    pub kind: BlockKind,
    /// Reserves allowed.
    pub privilege: Privilege,
    /// The file.
    pub ino: InodeNo,
}

impl BlockRequest {
    /// Up to `want` blocks for the data of a file.
    #[must_use]
    pub fn data(ino: InodeNo, goal: Option<BlockNo>, want: u32, privilege: Privilege) -> Self {
        Self { goal, want, min: 1, kind: BlockKind::Data, privilege, ino }
    }
}

/// Contiguous blocks of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// The first.
    pub start: BlockNo,
    /// How many.
    pub len: u32,
}

impl BlockRun {
    /// The block after the last.
    #[must_use]
    pub fn end(&self) -> BlockNo {
        BlockNo(self.start.0 + u64::from(self.len))
    }
}
