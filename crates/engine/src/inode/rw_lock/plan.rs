//! Where the bytes of a write go.

use super::PendingConversion;
use crate::map::Mapping;
use nextent_device::queue::{Piece, Pieces};
use nextent_num::to_usize;
use nextent_ondisk::FileBlock;

/// Where the first bytes of a write go, known before any of them is written.
#[derive(Debug, Default)]
pub struct Plan {
    /// Ranges of the device, in order.
    pub(crate) pieces: Pieces,
    /// The sum of their lengths.
    pub(crate) bytes: usize,
    /// The conversion to do once the data is on the device.
    pub(crate) conversion: PendingConversion,
}

impl Plan {
    /// Adds what `found` maps of the next bytes of the write, of which there are `left`. They begin
    /// `within` a block. Returns how many bytes that are, or `None` for a hole.
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        found: Mapping,
        (block, within): (FileBlock, u64),
        left: u64,
        block_size: u64,
    ) -> Option<u64> {
        let (start, len) = match found {
            Mapping::Hole { .. } => return None,
            Mapping::Written { start, len } => (start, len),
            Mapping::Unwritten { start, len } => {
                self.conversion.blocks.push(block..FileBlock(block.0 + len));
                (start, len)
            }
        };
        let bytes = (u64::from(len) * block_size - within).min(left);
        let (offset, len) = (start.0 * block_size + within, to_usize(bytes));
        self.pieces.push(Piece { offset, start: self.bytes, len });
        self.bytes += len;
        Some(bytes)
    }
}
