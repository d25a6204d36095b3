//! Types of arguments and results of the operations.

use nextent_ondisk::{BlockNo, FileBlock};

/// Whether mapped blocks hold data or read as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ExtentState {
    /// The blocks hold data.
    Written,
    /// The blocks are allocated and read as zeros.
    Unwritten,
}

/// The mapping of a range of file blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapping {
    /// No blocks are mapped.
    Hole {
        /// Length, up to the next extent or the limit of the lookup.
        len: u32,
        /// The block that makes the range contiguous with a neighbouring extent, if there is one.
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
    /// The length in blocks.
    #[must_use]
    pub(crate) const fn len(self) -> u32 {
        match self {
            Self::Hole { len, .. } | Self::Written { len, .. } | Self::Unwritten { len, .. } => len,
        }
    }
}

/// A range of file blocks that is contiguous in the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First block in the file.
    pub(crate) at: FileBlock,
    /// First block in the volume.
    pub(crate) start: BlockNo,
    /// Length in blocks.
    pub(crate) len: u32,
    /// Written or unwritten.
    pub(crate) state: ExtentState,
}

impl Extent {
    /// The file block after the last.
    #[must_use]
    pub(crate) const fn end(&self) -> FileBlock {
        FileBlock(self.at.get().saturating_add(self.len))
    }
}

/// The progress of [`super::convert_runs`] within the credits of its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the remaining runs have to be converted in another handle"]
pub(crate) struct Converted {
    /// Runs that are converted.
    pub(crate) done: usize,
    /// Unwritten extents that were changed.
    pub(crate) changes: usize,
}

/// The progress of an operation within the credits of its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a stopped operation has to be continued in another handle"]
pub(crate) enum Progress {
    /// The operation is complete.
    Done,
    /// The credits ran out. Each operation documents the meaning of the block.
    Stopped(FileBlock),
}

impl Extent {
    /// The initial value of arrays. No operation returns it.
    pub(super) const NONE: Self =
        Self { at: FileBlock(0), start: BlockNo(0), len: 0, state: ExtentState::Written };
}
