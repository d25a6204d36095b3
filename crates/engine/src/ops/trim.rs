//! `FITRIM`: tells the device which blocks hold nothing.

use std::ops::Range;

use nextent_ondisk::BlockNo;

use crate::error::Result;
use crate::volume::Volume;

impl Volume {
    /// Discards free runs of at least `min_len` bytes inside `range` (bytes of the volume).
    /// Returns how many bytes were discarded. Blocks freed by changes that are not yet durable
    /// are left alone.
    ///
    /// # Errors
    /// [`Error::ReadOnly`](crate::Error::ReadOnly), what the device says.
    pub fn trim(&self, range: Range<u64>, min_len: u64) -> Result<u64> {
        self.fs.check_writable()?;
        let block_size = self.fs.block_size();
        let first = range.start.div_ceil(block_size);
        let last = (range.end / block_size).min(self.fs.geometry.blocks_count);
        let min_blocks = min_len.div_ceil(block_size).max(1);
        let blocks = BlockNo(first)..BlockNo(last);
        let mut discarded = 0;
        self.fs.blocks.trim(blocks, min_blocks, &mut |start, len| {
            let (offset, bytes) = (start.0 * block_size, u64::from(len) * block_size);
            let done = self.fs.store.device().discard(offset, bytes);
            done.map_err(|source| nextent_store::Error::Io {
                op: "discard",
                block: start,
                source: nextent_sync::Arc::new(source),
            })?;
            discarded += bytes;
            Ok(())
        })?;
        Ok(discarded)
    }
}
