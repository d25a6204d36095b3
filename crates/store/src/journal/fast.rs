//! Fast commits: some records that bring one file up to date, instead of a whole transaction.
//!
//! The caller makes records of a file as it is, such that nothing but the last full commit is
//! needed to replay them. Callers that come at the same time share one fast commit: it is written
//! by one of them, who has the turn to commit as for a full one, but with the gate open.
//!
//! What keeps records true: the caller keeps the file's map and size as they are until its records
//! are written, and they name blocks. Should such a block be freed in this transaction and given to
//! another file, then records of that file would name it too. So who frees blocks in a transaction
//! that has fast commits bars further ones ([`bar`](Journal::bar_fast)); it does so before anybody
//! can have the block, and after the records that name it were written or seen to be barred: it has
//! the file for itself to free of it, and the caller of a fast commit has not let go of it before.

use super::core::{Control, Journal};
use super::gate;
use crate::Result;
use nextent_ondisk::Tid;
use nextent_sync::MutexGuard;
use nextent_sync::atomic::{AtomicU64, Ordering};

/// Callers of the next fast commit, and what came of those before. `[journal.control]`
#[derive(Default)]
pub(super) struct Callers {
    /// Records of those who wait for the next one.
    records: Vec<Vec<u8>>,
    /// The flush that makes the data of all of them stable.
    data: u64,
    /// The next one's number, from 0.
    next: u64,
    /// How many have ended, well or not.
    ended: u64,
    /// One more than the number of the last that ended well.
    good: u64,
}

/// Marks of transactions, each one more than its number; 0 for none.
#[derive(Default)]
pub(super) struct Marks {
    /// Has fast commits. Release by who has the turn; Acquire by those who free blocks.
    written: AtomicU64,
    /// Gets no more. Stored before blocks can be had again, loaded by who has the turn; ordered by
    /// the locks of the blocks' region between.
    barred: AtomicU64,
}

fn mark(tid: Tid) -> u64 {
    u64::from(tid.0) + 1
}

impl Callers {
    /// Whether somebody waits.
    pub(super) fn is_awaited(&self) -> bool {
        !self.records.is_empty()
    }

    /// Those who wait for the next one must go the long way.
    pub(super) fn refuse(&mut self) {
        self.records.clear();
        (self.data, self.next) = (0, self.next + 1);
        self.ended = self.next;
    }
}

impl Journal {
    /// The transaction of which fast commits can be written now: it runs, and the one before it is
    /// on disk and in its place in the cache. None if that is not so, or there is no room for them.
    pub(crate) fn fast_tid(&self) -> Option<Tid> {
        self.log.fast()?;
        let (state, tid) = self.gate.load();
        let before = Tid(tid.0.wrapping_sub(1));
        (gate::running(state) && self.is_settled(before)).then_some(tid)
    }

    /// The most bytes of one record.
    pub(crate) fn longest_record(&self) -> usize {
        self.log.fast().map_or(0, super::log::FastArea::longest_record)
    }

    /// Blocks are freed in `tid`.
    #[inline]
    pub(super) fn bar_fast(&self, tid: Tid) {
        if self.log.fast().is_some() && self.fast.written.load(Ordering::Acquire) == mark(tid) {
            self.fast.barred.store(mark(tid), Ordering::Release);
        }
    }

    /// Makes `records` durable as part of a fast commit of `tid`, and data that flush `data` covers
    /// before; false if it must be a full commit.
    pub(crate) fn commit_fast(&self, tid: Tid, records: Vec<Vec<u8>>, data: u64) -> Result<bool> {
        let mut control = self.control.lock();
        if !self.may_be_fast(&control, tid) {
            return Ok(self.is_settled(tid));
        }
        control.fast.records.extend(records);
        control.fast.data = control.fast.data.max(data);
        let own = control.fast.next;
        loop {
            if control.fast.good > own || self.is_settled(tid) {
                return Ok(true);
            }
            if control.fast.ended > own {
                return Ok(false);
            }
            self.check()?;
            if self.is_committing() {
                self.done.wait(&mut control);
            } else if self.may_be_fast(&control, tid) {
                control = self.lead_fast(control, tid);
            } else {
                control.fast.refuse();
                self.done.notify_all();
            }
        }
    }

    fn may_be_fast(&self, control: &Control, tid: Tid) -> bool {
        let wanted = control.stop || control.freezes > 0 || control.starved > 0;
        let barred = self.fast.barred.load(Ordering::Acquire) == mark(tid);
        !wanted && !barred && !self.is_aborted() && self.fast_tid() == Some(tid)
    }

    /// Writes what is there for the next fast commit of `tid`.
    fn lead_fast<'j>(
        &'j self,
        mut control: MutexGuard<'j, Control>,
        tid: Tid,
    ) -> MutexGuard<'j, Control> {
        self.set_committing(&control, true);
        self.fast.written.store(mark(tid), Ordering::Release);
        let records = std::mem::take(&mut control.fast.records);
        let data = std::mem::take(&mut control.fast.data);
        control.fast.next += 1;
        drop(control);
        let area = self.log.fast().expect("it was looked at before");
        let written = area.write(tid, &records, data, self.cache.flushes());
        let mut control = self.control.lock();
        control.fast.ended = control.fast.next;
        if matches!(written, Ok(true)) {
            control.fast.good = control.fast.next;
        } else {
            // No room, or the device failed: a full commit makes room, or tells.
            self.fast.barred.store(mark(tid), Ordering::Release);
        }
        self.set_committing(&control, false);
        self.wake_if_wanted(&control, Tid(tid.0.wrapping_sub(1)));
        self.done.notify_all();
        control
    }
}
