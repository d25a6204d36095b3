//! The interface from a map to the block allocator.

use crate::alloc::BlockAlloc;
use crate::error::Result;
use nextent_ondisk::BlockNo;
use nextent_store::Handle;

pub(crate) use crate::alloc::{BlockKind, BlockRequest, BlockRun, Privilege};

/// Allocates blocks for nodes, and frees blocks of nodes and data.
pub(crate) trait Space: Sync {
    /// Allocates contiguous blocks.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`], or an error of reading bitmaps.
    fn allocate(&self, h: &Handle<'_>, request: &BlockRequest) -> Result<BlockRun>;

    /// Frees `len` blocks from `start` on. The journal forgets blocks of metadata.
    ///
    /// # Errors
    /// An error of reading bitmaps, or blocks that are free already.
    fn free(&self, h: &Handle<'_>, start: BlockNo, len: u32, kind: BlockKind) -> Result<()>;

    /// Whether any of the blocks lies in the system zone or outside the volume. Takes no lock.
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
