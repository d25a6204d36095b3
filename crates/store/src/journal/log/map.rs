//! The map from blocks of the journal to blocks of the volume.

use crate::{Error, Result};
use nextent_device::BlockDevice;
use nextent_num::{must_fit, to_u64, to_usize};
use nextent_ondisk::BlockNo;
use nextent_sync::Arc;
use std::io::IoSlice;

/// A run of the journal's blocks, in the order of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalRun {
    /// First block in the volume.
    pub start: BlockNo,
    /// Number of blocks.
    pub len: u32,
}

/// The journal as an array of blocks on a device.
#[derive(Clone)]
pub(crate) struct JournalArea {
    device: Arc<dyn BlockDevice>,
    block_size: usize,
    /// Position in the journal of each run's first block, and the run.
    runs: Vec<(u32, JournalRun)>,
    len: u32,
}

impl JournalArea {
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        block_size: usize,
        runs: &[JournalRun],
        volume_blocks: u64,
    ) -> Result<Self> {
        let mut len = 0u32;
        let mut placed = Vec::with_capacity(runs.len());
        for run in runs {
            let end = run.start.0.checked_add(u64::from(run.len));
            let next = len.checked_add(run.len);
            let (Some(next), true) = (next, end.is_some_and(|end| end <= volume_blocks)) else {
                let what = format!("lies outside the volume, at block {}", run.start);
                return Err(Error::Corrupt { block: u64::from(len), what });
            };
            placed.push((len, *run));
            len = next;
        }
        // A log whose runs overlap can be longer than the device.
        let mut sorted: Vec<_> = placed.iter().map(|(at, run)| (run.start, run.len, *at)).collect();
        sorted.sort_unstable();
        for pair in sorted.windows(2) {
            let ((start, len, _), (next, _, at)) = (pair[0], pair[1]);
            if start.0 + u64::from(len) > next.0 {
                let what = format!("overlaps another of its blocks, at block {next}");
                return Err(Error::Corrupt { block: u64::from(at), what });
            }
        }
        Ok(Self { device, block_size, runs: placed, len })
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn block_size(&self) -> usize {
        self.block_size
    }

    /// The block at `position`, and the number of blocks to the end of its run.
    fn locate(&self, position: u32) -> Result<(BlockNo, u32)> {
        let at = self.runs.partition_point(|(first, _)| *first <= position);
        let found = at.checked_sub(1).map(|at| self.runs[at]);
        match found {
            Some((first, run)) if position - first < run.len => {
                let skip = position - first;
                Ok((BlockNo(run.start.0 + u64::from(skip)), run.len - skip))
            }
            _ => Err(Error::Corrupt {
                block: u64::from(position),
                what: format!("is beyond the journal's {} blocks", self.len),
            }),
        }
    }

    pub(crate) fn read(&self, position: u32) -> Result<Vec<u8>> {
        let (no, _) = self.locate(position)?;
        let mut bytes = vec![0; self.block_size];
        self.device
            .read_at(no.0 * to_u64(self.block_size), &mut bytes)
            .map_err(|e| Error::io("journal read", no, e))?;
        Ok(bytes)
    }

    /// Writes `blocks` from `position` on.
    pub(crate) fn write(&self, position: u32, blocks: &[&[u8]]) -> Result<()> {
        const MAX_RUN: usize = 256;
        let mut position = position;
        let mut rest = blocks;
        while !rest.is_empty() {
            let (no, run) = self.locate(position)?;
            let n = rest.len().min(to_usize(run)).min(MAX_RUN);
            let slices: Vec<_> = rest[..n].iter().map(|b| IoSlice::new(b)).collect();
            self.device
                .write_vectored_at(no.0 * to_u64(self.block_size), &slices)
                .map_err(|e| Error::io("journal write", no, e))?;
            rest = &rest[n..];
            position += must_fit::<u32, _>(n);
        }
        Ok(())
    }

    /// Writes the first bytes of the journal's block 0.
    pub(crate) fn write_superblock(&self, bytes: &[u8]) -> Result<()> {
        let (no, _) = self.locate(0)?;
        self.device
            .write_at(no.0 * to_u64(self.block_size), bytes)
            .map_err(|e| Error::io("journal superblock write", no, e))
    }

    pub(crate) fn flush(&self) -> Result<()> {
        let first = self.runs.first().map_or(BlockNo(0), |(_, run)| run.start);
        self.device.flush().map_err(|e| Error::io("flush", first, e))
    }
}
