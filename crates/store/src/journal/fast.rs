//! Fast commits: records that bring one file up to date, instead of a whole transaction.
//!
//! The caller makes records of a file's present state, such that their replay depends on nothing
//! but the last full commit. Concurrent callers share one fast commit. One of them writes it: it
//! has the turn to commit, as for a full commit, but leaves the gate open.
//!
//! # Blocks named by records
//!
//! Invariant: a block that a record names belongs to the record's file until the whole transaction
//! is durable. The file may free it meanwhile. If another file wrote it before then, a crash would
//! bring the first file back with the other's bytes. So the allocator calls
//! [`has_fast`](Journal::has_fast) when it frees blocks, and withholds them if the transaction has
//! fast commits.
//!
//! | caller of a fast commit | thread that frees blocks |
//! |---|---|
//! | 1. holds the file's lock shared, makes records | |
//! | 2. stores `written` (the leader does), then writes | |
//! | 3. releases the file's lock | 4. takes the file's lock exclusively |
//! | | 5. loads `written`: the transaction has fast commits |
//!
//! A block freed before the first fast commit is in no record. A block freed later is not reused in
//! this transaction, so no two of its records name a block for different files.
//!
//! # Full commits instead
//!
//! A change that concerns more than one inode, such as the move of a directory, bars further fast
//! commits of its transaction ([`bar_fast`](Journal::bar_fast)): a later sync of any file commits
//! all of it.
//!
//! e2fsck (1.47) reads superblock and group descriptors before it replays the log, and writes its
//! copies back after it has replayed fast commits. Bitmaps, inode tables, orphans and features that
//! only the log had are lost then, and the superblock's checksum is wrong. So a fast commit is
//! written only while all transactions are in place and stable ([`FastMarks::hold`]): e2fsck then
//! replays fast commits alone. Until then every sync makes a full commit, and the first that could
//! have been fast starts a checkpoint ([`allow_fast`](Journal::allow_fast)).

use super::commit::CommitTurn;
use super::core::{Control, Journal};
use crate::Result;
use nextent_num::must_fit;
use nextent_ondisk::Tid;
use nextent_sync::MutexGuard;
use nextent_sync::atomic::{AtomicU64, Ordering};

/// Callers of the next fast commit, and the results of earlier ones. `[journal.control]`
#[derive(Default)]
pub(super) struct FastCallers {
    /// Records of the callers that wait for the next fast commit.
    records: Vec<Vec<u8>>,
    /// The flush that makes the data of all these callers stable.
    data: u64,
    /// The number of the next fast commit, from 0.
    next: u64,
    /// How many have ended, with or without success.
    ended: u64,
    /// One more than the number of the last that succeeded.
    good: u64,
}

/// Marked transactions, each as its number plus one; 0 for none.
#[derive(Default)]
pub(super) struct FastMarks {
    /// The newest with fast commits. Release by the leader; Acquire by threads that free blocks.
    written: AtomicU64,
    /// The newest that may have no more. Release by its handles and by the leader; Acquire by
    /// callers and the leader.
    barred: AtomicU64,
    /// The newest that must be in place before the next fast commit. Release by the committer,
    /// before it publishes that the transaction is durable, and by the checkpoint; Acquire by
    /// callers and the leader.
    held: AtomicU64,
}

impl FastMarks {
    /// Allows no fast commit until `tid`, which is being committed, is in place.
    pub(super) fn hold(&self, tid: Tid) {
        self.held.store(mark(tid), Ordering::Release);
    }

    /// Everything up to `last` is in place and stable.
    pub(super) fn release(&self, last: Tid) {
        let held = self.held.load(Ordering::Acquire);
        if held != 0 && last.is_at_least(Tid(must_fit(held - 1))) {
            // A later commit may have stored its own mark meanwhile.
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

impl FastCallers {
    /// Whether a caller waits.
    pub(super) fn is_awaited(&self) -> bool {
        !self.records.is_empty()
    }

    /// The callers that wait for the next fast commit must make a full one.
    pub(super) fn refuse(&mut self) {
        self.records.clear();
        (self.data, self.next) = (0, self.next + 1);
        self.ended = self.next;
    }
}

impl Journal {
    /// The transaction of which fast commits can be written now: it runs, and the one before it is
    /// complete. `None` otherwise, if an older one must be in place first, or if the log has no
    /// area for fast commits.
    pub(crate) fn fast_tid(&self) -> Option<Tid> {
        self.log.fast()?;
        let (state, tid) = self.gate.load();
        let before = Tid(tid.0.wrapping_sub(1));
        (state.is_open() && self.is_complete(before) && !self.fast.is_held()).then_some(tid)
    }

    /// Starts a background checkpoint of the transactions that the next fast commit waits for.
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

    /// Makes `records` durable as part of a fast commit of `tid`, and before them the data that
    /// flush `data` covers; false if it must be a full commit.
    pub(crate) fn commit_fast(&self, tid: Tid, records: Vec<Vec<u8>>, data: u64) -> Result<bool> {
        let mut control = self.control.lock();
        if !self.may_be_fast(&control, tid) {
            return Ok(self.is_complete(tid));
        }
        control.fast.records.extend(records);
        control.fast.data = control.fast.data.max(data);
        let own = control.fast.next;
        loop {
            if control.fast.good > own || self.is_complete(tid) {
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

    /// Leads the next fast commit of `tid`.
    fn lead_fast<'j>(
        &'j self,
        mut control: MutexGuard<'j, Control>,
        tid: Tid,
    ) -> MutexGuard<'j, Control> {
        let turn = CommitTurn::begin(self, &control, Tid(tid.0.wrapping_sub(1)));
        self.fast.written.store(mark(tid), Ordering::Release);
        let records = std::mem::take(&mut control.fast.records);
        let data = std::mem::take(&mut control.fast.data);
        control.fast.next += 1;
        drop(control);
        let area = self.log.fast().expect("the caller has checked it");
        let written = area.write(tid, &records, data, self.cache.flushes());
        let mut control = self.control.lock();
        control.fast.ended = control.fast.next;
        if matches!(written, Ok(true)) {
            control.fast.good = control.fast.next;
            self.counts.count_fast();
        } else {
            // No space, or the device failed: a full commit makes space, or reports the error.
            self.fast.barred.store(mark(tid), Ordering::Release);
        }
        turn.end(&mut control);
        self.done.notify_all();
        control
    }
}
