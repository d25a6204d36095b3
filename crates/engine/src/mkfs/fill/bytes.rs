//! The bytes of files that have their places.

use super::super::write::Out;
use crate::error::{Cause, Error, Result};
use crate::ops::{self, FillRun};
use nextent_num::{to_u64, to_usize};
use nextent_ondisk::BlockNo;
use std::fmt;
use std::io::IoSlice;

/// Writes the bytes of files to the blocks that a [`Filling`](super::Filling) allocated.
///
/// Usable from all threads: it needs no lock, since no two files share a block.
#[derive(Clone)]
pub struct FillBytes<'d> {
    out: Out<'d>,
    block_size: u32,
}

impl fmt::Debug for FillBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FillBytes").field("block_size", &self.block_size).finish_non_exhaustive()
    }
}

impl<'d> FillBytes<'d> {
    pub(super) fn new(out: Out<'d>, block_size: u32) -> Self {
        Self { out, block_size }
    }

    /// Bytes of a block: what whole blocks are multiples of.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Writes `bytes` at `offset` of a file of `size` bytes that lies in `runs`; with the last
    /// byte of the file also the zeros that follow it in its block.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Invalid`] for bytes that have no place.
    pub fn write(&self, runs: &[FillRun], size: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let block_size = u64::from(self.block_size);
        let write = &mut |at, parts: &[&[u8]]| self.write_parts(at, parts);
        ops::write_to_runs(block_size, (runs, size), offset, bytes, write)
    }

    /// Writes whole blocks of one or several files, `parts` after one another.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_blocks(&self, device: u64, parts: &[&[u8]]) -> Result<()> {
        let whole = |part: &&[u8]| part.len().is_multiple_of(to_usize(self.block_size));
        debug_assert!(parts.iter().all(whole), "whole blocks");
        self.write_parts(device, parts)
    }

    pub(super) fn write_parts(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let filled = parts.iter().filter(|part| !part.is_empty());
        let slices: Vec<IoSlice<'_>> = filled.map(|part| IoSlice::new(part)).collect();
        let done = match slices.as_slice() {
            [one] => self.out.device.write_at(offset, one),
            many => self.out.device.write_vectored_at(offset, many),
        };
        done.map_err(|error| {
            let block = BlockNo(offset / u64::from(self.block_size));
            Error::Io(Cause::new(format!("write of block {block}: {error}")))
        })?;
        self.out.count(parts.iter().map(|part| to_u64(part.len())).sum());
        Ok(())
    }
}
