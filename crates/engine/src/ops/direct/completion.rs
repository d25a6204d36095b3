//! What follows the data of a write. Inside the file: the times, and a deferred conversion. Past
//! the end: conversion, size and times in one handle, for all concurrent writes.

use nextent_ondisk::{DiskTime, RoCompat};
use nextent_store::Handle;
use nextent_sync::Arc;

use super::super::truncate::LARGE;
use super::super::write::TICK_NANOS;
use crate::Cred;
use crate::error::Result;
use crate::inode::deferred_conversion::RUNS_PER_HANDLE;
use crate::inode::rw_lock::{PendingConversion, SharedIo, Transfer, merge_runs};
use crate::inode::{Change, Inode, credits};
use crate::ops::Inodes;

fn nanos(time: DiskTime) -> u64 {
    let seconds = u64::try_from(time.seconds).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::from(time.nanos))
}

impl Inodes {
    /// Completes a write whose data is on the device: conversion, size and times. The caller's
    /// transfer keeps the blocks mapped.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace) if the map needs a block and the reserved pool has
    /// none. The blocks stay unwritten then.
    pub(super) fn complete_write(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        transfer: &Transfer<'_>,
        own: PendingConversion,
    ) -> Result<()> {
        if own.size == 0 {
            return self.defer_conversion(cred, inode, transfer.io(), &own.blocks);
        }
        let work = |conversion| self.convert_batch(cred, inode, conversion);
        transfer.io().group.run(own, work)
    }

    /// Converts the blocks of one or several writes, and sets size and times.
    ///
    /// # Errors
    /// As [`complete_write`](Self::complete_write).
    pub(super) fn convert_batch(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        all: PendingConversion,
    ) -> Result<()> {
        let PendingConversion { blocks: mut runs, mut size } = all;
        merge_runs(&mut runs);
        let (mut done, mut changes) = (0, 0);
        while done < runs.len() || size != 0 {
            let end = runs.len().min(done + RUNS_PER_HANDLE);
            let converted = self.fs.convert_some(inode, &mut runs[done..end], |h| {
                // First: no full or fast commit may find written blocks past the end.
                self.grow_to(h, inode, std::mem::take(&mut size));
                self.note_write(h, inode, cred);
            })?;
            done += converted.done;
            changes += converted.changes;
        }
        if changes < runs.len() / 2 || changes == 0 && !runs.is_empty() {
            inode.rw.note_needless_conversion();
        }
        Ok(())
    }

    /// Sets the size to `size` if it is less.
    fn grow_to(&self, h: &Handle<'_>, inode: &Arc<Inode>, size: u64) {
        if size == 0 {
            return;
        }
        if size >= LARGE {
            self.fs.sup.set_feature(h, RoCompat::LARGE_FILE);
        }
        inode.change(h, Change::Contents, |state| {
            if state.disk.size < size {
                state.disk.size = size;
                state.data_changed = Some(h.tid());
            }
        });
    }

    /// Whether an overwrite must set the times.
    #[inline]
    pub(super) fn times_due(&self, io: &SharedIo) -> bool {
        let passed = nanos(self.fs.now()).checked_sub(io.times_set_at());
        passed.is_none_or(|passed| i128::from(passed) >= TICK_NANOS)
    }

    /// Sets the times after an overwrite, once per tick.
    pub(super) fn touch_times_counted(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        io: &SharedIo,
    ) -> Result<()> {
        if !self.times_due(io) {
            return Ok(());
        }
        // First, so that other transfers do not set the times too.
        io.note_times_set(nanos(self.fs.now()));
        let h = self.fs.start(credits::INODE)?;
        self.note_write(&h, inode, cred);
        Ok(())
    }
}
