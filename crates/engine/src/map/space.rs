//! What a map asks of the block allocator.

use crate::alloc::BlockAlloc;
use crate::error::Result;
use nextent_ondisk::BlockNo;
use nextent_store::Handle;

pub(crate) use crate::alloc::{BlockKind, BlockRequest, BlockRun, Privilege};

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
    fn free(&self, h: &Handle<'_>, start: BlockNo, len: u32, kind: BlockKind) -> Result<()>;

    /// Whether any of the blocks is the volume's own, or lies outside it. Takes no lock.
    fn overlaps_system_zone(&self, start: BlockNo, len: u32) -> bool;
}

impl Space for BlockAlloc {
    fn allocate(&self, h: &Handle<'_>, request: &BlockRequest) -> Result<BlockRun> {
        Ok(BlockAlloc::allocate(self, h, request)?)
    }

    fn free(&self, h: &Handle<'_>, start: BlockNo, len: u32, kind: BlockKind) -> Result<()> {
        Ok(BlockAlloc::free(self, h, start, len, kind)?)
    }

    fn overlaps_system_zone(&self, start: BlockNo, len: u32) -> bool {
        BlockAlloc::overlaps_system_zone(self, start, len)
    }
}
