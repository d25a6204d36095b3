//! Fast commits: some records that bring one file up to date, instead of a whole transaction.
//!
//! The caller makes records of a file as it is, such that nothing but the last full commit is
//! needed to replay them. Callers that come at the same time share one fast commit: it is written
//! by one of them, who has the turn to commit as for a full one, but with the gate open.
//!
//! What keeps a promise true: records name blocks, and such a block belongs to its file until the
//! whole transaction is durable. The file may lose it meanwhile; then it may be written by nobody
//! else before that, or a crash would bring the file back with another file's bytes. So the
//! allocator asks [`has_fast`](Journal::has_fast) when it frees blocks, and holds them back if the
//! transaction has fast commits.
//!
//! | caller of a fast commit | thread that frees blocks |
//! |---|---|
//! | holds the file's lock shared, makes records | |
//! | stores `written` (the leader does), then writes | |
//! | lets go of the file's lock | takes the file's lock exclusively |
//! | | loads `written`: the transaction has fast commits |
//!
//! A block that was freed before the first fast commit is in no record. Blocks freed later are not
//! handed out in this transaction, so no two records of it name a block for different files.
//!
//! A change that reaches further than one inode, as the move of a directory does, bars further fast
//! commits of its transaction ([`bar_fast`](Journal::bar_fast)): a sync of any file that follows
//! commits all of it.
//!
//! e2fsck (1.47) reads superblock and group descriptors before it replays the log, and writes back
//! what it has of them after it has replayed fast commits: bitmaps, inode tables, orphans and
//! features that only the log had are lost then, and the superblock's checksum is wrong. So there
//! is no fast commit before all transactions are in place and stable ([`Marks::hold`]): what e2fsck
//! replays then is fast commits alone. Until then syncs commit all, and the first that could have
//! been fast has the checkpoint begin ([`allow_fast`](Journal::allow_fast)).

use super::commit::Turn;
use super::core::{Control, Journal};
use crate::Result;
use nextent_num::must_fit;
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
    /// Has fast commits. Release by the leader; Acquire by threads that free blocks.
    written: AtomicU64,
    /// Gets no more. Release by handles of the transaction and by the leader; Acquire by callers
    /// and the leader.
    barred: AtomicU64,
    /// The last transaction that must be in place before there are more. Release by the commit,
    /// before it says that the transaction is durable, and by the checkpoint; Acquire by callers
    /// and the leader.
    held: AtomicU64,
}

impl Marks {
    /// Allows no fast commit until `tid`, which is being committed, is in place.
    pub(super) fn hold(&self, tid: Tid) {
        self.held.store(mark(tid), Ordering::Release);
    }

    /// Everything up to `last` is in place and stable.
    pub(super) fn release(&self, last: Tid) {
        let held = self.held.load(Ordering::Acquire);
        if held != 0 && last.is_at_least(Tid(must_fit(held - 1))) {
            // A later commit may have stored its own meanwhile.
            let _ = self.held.compare_exchange(held, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire) != 0
    }
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
    /// on disk and in its place in the cache. None if that is not so, if an older one must be in
    /// place on disk first, or if there is no room for them.
    pub(crate) fn fast_tid(&self) -> Option<Tid> {
        self.log.fast()?;
        let (state, tid) = self.gate.load();
        let before = Tid(tid.0.wrapping_sub(1));
        (state.is_running() && self.is_settled(before) && !self.fast.is_held()).then_some(tid)
    }

    /// Has the transactions put in place, in the background, that the next fast commit waits for.
    pub(crate) fn allow_fast(&self) {
        if self.log.fast().is_some() && self.fast.is_held() {
            self.queue.wake_now();
        }
    }

    /// The most bytes of one record.
    pub(crate) fn longest_record(&self) -> usize {
        self.log.fast().map_or(0, super::log::FastArea::longest_record)
    }

    /// Whether `tid`, the transaction of the caller's handle, has fast commits.
    #[inline]
    pub(super) fn has_fast(&self, tid: Tid) -> bool {
        self.log.fast().is_some() && self.fast.written.load(Ordering::Acquire) == mark(tid)
    }

    /// Allows no further fast commit of `tid`, the transaction of the caller's handle.
    pub(super) fn bar_fast(&self, tid: Tid) {
        self.fast.barred.store(mark(tid), Ordering::Release);
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
        let turn = Turn::begin(self, &control, Tid(tid.0.wrapping_sub(1)));
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
        turn.end(&mut control);
        self.done.notify_all();
        control
    }
}
