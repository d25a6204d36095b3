//! What follows a transfer's data: conversion, size and times, in one handle for all that finish
//! together.

use std::ops::Range;

use nextent_ondisk::{DiskTime, FileBlock, RoCompat};
use nextent_store::Handle;
use nextent_sync::{Arc, Fault, planted};

use super::super::truncate::LARGE;
use super::super::write::TICK_NANOS;
use crate::Cred;
use crate::alloc::Privilege;
use crate::error::Result;
use crate::inode::long::{Finished, Refs, Transfer};
use crate::inode::{Inode, credits};
use crate::map::{self, Converted};
use crate::volume::Volume;

/// Most runs that are converted in one handle: bounds how long a commit waits for it.
const RUNS: usize = 256;

fn nanos(time: DiskTime) -> u64 {
    let seconds = u64::try_from(time.seconds).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::from(time.nanos))
}

impl Volume {
    /// Ends a write whose data is on the device: converts, sets size and times. The caller's
    /// reference keeps the blocks in the file.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace) if the map needs a block and not even the
    /// reserved pool has one; the blocks stay unwritten then.
    pub(super) fn finish(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        transfer: &Transfer<'_>,
        own: Finished,
    ) -> Result<()> {
        if own.blocks.is_empty() && own.size == 0 {
            return self.touch_by_reference(cred, inode, transfer.refs());
        }
        let work = |finished| self.convert_together(cred, inode, finished);
        transfer.refs().finished.run(own, work)
    }

    /// Converts what one or several transfers have written, with their size and times.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub(super) fn convert_together(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        all: Finished,
    ) -> Result<()> {
        let mut blocks = joined(all.blocks);
        let mut left = &mut blocks[..];
        let mut size = all.size;
        let (runs, mut changes) = (left.len(), 0);
        loop {
            let (now, later) = left.split_at_mut(left.len().min(RUNS));
            changes += self.convert_runs(cred, inode, now, std::mem::take(&mut size))?;
            if later.is_empty() {
                break;
            }
            left = later;
        }
        if changes < runs / 2 || changes == 0 && runs > 0 {
            inode.rw.note_idle();
        }
        Ok(())
    }

    /// Converts as many runs as one handle should; how many extents were unwritten.
    fn convert_runs(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        runs: &mut [Range<FileBlock>],
        size: u64,
    ) -> Result<usize> {
        let fs = &self.fs;
        let (mut next, mut changes) = (0, 0);
        loop {
            // The map may have a level more by the time it is changed.
            let need = map::change_credits(&inode.map.read()) + credits::INODE + 5;
            let h = fs.start(need)?;
            let may = if planted(Fault::CompletionUnreserved) {
                Privilege::User
            } else {
                Privilege::Reserved
            };
            let cx = fs.map_cx(inode, may);
            // First: no commit, and no fast one, may find written blocks past the end.
            self.grow_to(&h, inode, size);
            let convert = |root: &mut _| map::convert_runs(&cx, &h, root, &mut runs[next..]);
            let Converted { done, changes: more } = inode.change_map(&h, convert)?;
            next += done;
            changes += more;
            if next < runs.len() {
                continue;
            }
            self.note_write(&h, inode, cred);
            return Ok(changes);
        }
    }

    /// Lets the file end at `size` if it ends before that.
    fn grow_to(&self, h: &Handle<'_>, inode: &Arc<Inode>, size: u64) {
        if size == 0 {
            return;
        }
        if size >= LARGE {
            self.fs.sup.set_feature(h, RoCompat::LARGE_FILE);
        }
        inode.change(h, |state| {
            if state.disk.size < size {
                state.disk.size = size;
                state.data_changed = Some(h.tid());
            }
        });
    }

    /// Whether the times are to be set after an overwrite.
    #[inline]
    pub(super) fn times_due(&self, refs: &Refs) -> bool {
        let passed = nanos(self.fs.now()).checked_sub(refs.touched());
        passed.is_none_or(|passed| i128::from(passed) >= TICK_NANOS)
    }

    /// Sets the times after an overwrite, once in a tick.
    pub(super) fn touch_by_reference(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        refs: &Refs,
    ) -> Result<()> {
        if !self.times_due(refs) {
            return Ok(());
        }
        // First, so that the others leave it to this one.
        refs.set_touched(nanos(self.fs.now()));
        let h = self.fs.start(credits::INODE)?;
        self.note_write(&h, inode, cred);
        Ok(())
    }
}

/// The runs in order, neighbours as one.
fn joined(mut runs: Vec<Range<FileBlock>>) -> Vec<Range<FileBlock>> {
    if runs.len() > 1 {
        runs.sort_unstable_by_key(|run| run.start);
        runs.dedup_by(|next, last| {
            let joins = next.start <= last.end;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_joined() {
        let run = |start, end| FileBlock(start)..FileBlock(end);
        let runs = vec![run(8, 9), run(1, 3), run(3, 5), run(4, 6), run(20, 21), run(9, 10)];
        assert_eq!(joined(runs), [run(1, 6), run(8, 10), run(20, 21)]);
        assert_eq!(joined(vec![run(2, 3)]), [run(2, 3)]);
        assert_eq!(joined(Vec::new()), []);
    }
}
