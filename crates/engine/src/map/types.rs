//! What verbs say and are told.

use nextent_ondisk::{BlockNo, FileBlock};

/// Whether allocated blocks hold the file's bytes or read as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ExtentState {
    /// The blocks hold data.
    Written,
    /// The blocks are allocated and read as zeros.
    Unwritten,
}

/// What a range of a file that begins at the block asked for is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapping {
    /// No blocks.
    Hole {
        /// Length, up to the next extent or the most asked for.
        len: u32,
        /// Where to allocate so that the file stays in one piece, if a neighbour tells.
        goal: Option<BlockNo>,
    },
    /// Blocks with data.
    Written {
        /// The first block.
        start: BlockNo,
        /// Length of the contiguous run.
        len: u32,
    },
    /// Blocks that read as zeros.
    Unwritten {
        /// The first block.
        start: BlockNo,
        /// Length of the contiguous run.
        len: u32,
    },
}

impl Mapping {
    /// The length in blocks, whatever it is.
    #[must_use]
    pub(crate) const fn len(self) -> u32 {
        match self {
            Self::Hole { len, .. } | Self::Written { len, .. } | Self::Unwritten { len, .. } => len,
        }
    }
}

/// A contiguous run of a file's blocks in the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First block of the file.
    pub(crate) at: FileBlock,
    /// First block of the volume.
    pub(crate) start: BlockNo,
    /// Length in blocks.
    pub(crate) len: u32,
    /// Written or not.
    pub(crate) state: ExtentState,
}

impl Extent {
    /// The file block after the last.
    #[must_use]
    pub(crate) const fn end(&self) -> FileBlock {
        FileBlock(self.at.get().saturating_add(self.len))
    }
}

/// How far [`super::convert_runs`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what is left has to be converted in a fresh handle"]
pub(crate) struct Converted {
    /// Runs that are done.
    pub(crate) done: usize,
    /// Unwritten extents that were met.
    pub(crate) changes: usize,
}

/// How far a verb came within the credits of its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a stopped verb has to be called again in a fresh handle"]
pub(crate) enum Progress {
    /// The whole range is done.
    Done,
    /// The handle ran short; the verb says what the block means.
    Stopped(FileBlock),
}

impl Extent {
    /// Fills arrays; no verb returns it.
    pub(super) const NONE: Self =
        Self { at: FileBlock(0), start: BlockNo(0), len: 0, state: ExtentState::Written };
}
