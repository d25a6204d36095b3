//! What follows a transfer's data: inside the file times, with the conversion put off; past its end
//! conversion, size and times in one handle, for all that finish together.

use nextent_ondisk::{DiskTime, RoCompat};
use nextent_store::Handle;
use nextent_sync::Arc;

use super::super::truncate::LARGE;
use super::super::write::TICK_NANOS;
use crate::Cred;
use crate::error::Result;
use crate::inode::long::{Finished, Refs, Transfer, join};
use crate::inode::settle::RUNS;
use crate::inode::{Change, Inode, credits};
use crate::ops::Inodes;

fn nanos(time: DiskTime) -> u64 {
    let seconds = u64::try_from(time.seconds).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::from(time.nanos))
}

impl Inodes {
    /// Ends a write whose data is on the device: sees to conversion, size and times. The caller's
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
        if own.size == 0 {
            return self.put_off(cred, inode, transfer.refs(), &own.blocks);
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
        let Finished { blocks: mut runs, mut size } = all;
        join(&mut runs);
        let (mut done, mut changes) = (0, 0);
        while done < runs.len() || size != 0 {
            let end = runs.len().min(done + RUNS);
            let converted = self.fs.convert_some(inode, &mut runs[done..end], |h| {
                // First: no commit, and no fast one, may find written blocks past the end.
                self.grow_to(h, inode, std::mem::take(&mut size));
                self.note_write(h, inode, cred);
            })?;
            done += converted.done;
            changes += converted.changes;
        }
        if changes < runs.len() / 2 || changes == 0 && !runs.is_empty() {
            inode.rw.note_idle();
        }
        Ok(())
    }

    /// Lets the file end at `size` if it ends before that.
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
