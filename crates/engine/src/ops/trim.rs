//! `FITRIM`: discards free blocks.

use std::io::ErrorKind;
use std::ops::Range;

use nextent_ondisk::BlockNo;

use crate::error::{Error, Result};
use crate::ops::Inodes;

impl Inodes {
    /// Discards free runs of at least `min_len` bytes inside `range` (bytes of the volume). Returns
    /// the number of bytes discarded. Skips blocks freed by changes that are not yet durable. One
    /// call runs at a time. Takes `[volume.trim]`.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::NotSupported`] if the device cannot discard; its other errors.
    pub fn trim(&self, range: Range<u64>, min_len: u64) -> Result<u64> {
        let _turn = self.fs.trim.lock();
        self.fs.check_writable()?;
        let block_size = self.fs.block_size();
        let first = range.start.div_ceil(block_size);
        let len = (range.end / block_size).saturating_sub(first);
        let min = u32::try_from(min_len.div_ceil(block_size).max(1)).unwrap_or(u32::MAX);
        let blocks = self.fs.blocks.trim(BlockNo(first), len, min).map_err(supported)?;
        Ok(blocks * block_size)
    }
}

/// Distinguishes a device that cannot discard from one that failed.
fn supported(error: impl Into<Error>) -> Error {
    match error.into() {
        error @ Error::Io(_) if error.kind() == ErrorKind::Unsupported => Error::NotSupported,
        error => error,
    }
}
