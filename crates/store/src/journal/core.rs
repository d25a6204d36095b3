//! The journal's shared state: admission, credits, requests for commits, abort.
//!
//! Invariants of handles, asserted in debug builds:
//!
//! | name | invariant | asserted in |
//! |---|---|---|
//! | J1 | credits held and set aside never exceed a transaction's capacity | `assert_credits` |
//! | J2 | a handle joins only a transaction that the gate admits it to | `Handle::assert_inside` |
//! | J3 | a commit proceeds only while no handle is inside | `Handle::assert_inside` |
//! | J4 | the log has space for two transactions before one is written | `Log::make_space` |
//! | J5 | at most half of a transaction's credits are set aside | `assert_credits` |
//! | J6 | no handle starts after an abort; callers get the first cause | - |
//!
//! Credits flow from the transaction's budget to leases of slots, and from there to handles. A
//! handle that finds neither waits: the committer recalls unused leases, or commits.
//!
//! Lock ranks: `[journal.control]` 610; the slots' lists are `[journal.slot]` 600.

use super::checkpoint::CheckpointQueue;
use super::fast::{FastCallers, FastMarks};
use super::gate::{self, Gate, GateState};
use super::handle::{Handle, Reservation};
use super::log::Log;
use super::seam::{Admission, AdmissionFactory, Joined, Joiner};
use super::slot::{JournalSlot, SlotRef};
use super::statistics::CommitCounts;
use super::waiters::{CommitGroup, Waiters};
use crate::cache::Cache;
use crate::{Error, Result, locks};
use nextent_num::{low_half, must_fit};
use nextent_ondisk::Tid;
use nextent_sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use nextent_sync::{Arc, CachePadded, Condvar, Instant, Mutex, OnceLock, injected};
use std::time::Duration;

/// Shares of a transaction's credits that a slot leases at once, at most: 1/32.
const LEASE_SHIFT: u32 = 5;

/// Requests to the committer, and the state of its work. `[journal.control]`
pub(super) struct Control {
    /// Newest transaction that a caller wants durable.
    pub(super) requested: Option<Tid>,
    /// Most credits that a handle of the running transaction waits for; 0 if none does.
    pub(super) starved: i64,
    /// How often the committer answered `starved` by recalling leases.
    pub(super) recalls: u64,
    /// Freezes in force or waited for.
    pub(super) freezes: u32,
    /// The gate is held closed, and everything is durable.
    pub(super) frozen: bool,
    /// The store closes: freezes have ended and are refused.
    pub(super) closing: bool,
    /// How often the store has begun to close: a thread that waits for a freeze may sleep until the
    /// store is open again.
    pub(super) closes: u64,
    /// No thread leads a commit any more, except the closing one, which makes the last.
    pub(super) stop: bool,
    /// When the last commit ended.
    pub(super) last_commit: Instant,
    /// Callers of the last commit and the next.
    pub(super) group: CommitGroup,
    /// Callers of the next fast commit.
    pub(super) fast: FastCallers,
    /// The commit thread sleeps until a commit led by another thread has ended.
    pub(super) commit_thread_waits: bool,
}

impl Control {
    /// The state after a close that is undone: no request, no freeze. The last commit has refused
    /// the fast commits that waited, but a caller may have come since.
    fn restart(&mut self) {
        (self.requested, self.starved) = (None, 0);
        (self.freezes, self.frozen) = (0, false);
        (self.closing, self.stop) = (false, false);
        self.last_commit = Instant::now();
        self.fast.refuse();
        self.commit_thread_waits = false;
    }
}

/// The journal of a store: admits handles to transactions, and makes transactions durable.
pub(crate) struct Journal {
    pub(crate) cache: Arc<Cache>,
    pub(super) gate: Gate,
    /// Credits of the running transaction that no slot has leased. Relaxed: an amount, which the
    /// drain of the gate makes exact.
    budget: CachePadded<AtomicI64>,
    /// Credits set aside by reservations; every transaction keeps as many free.
    reserved: CachePadded<AtomicI64>,
    overruns: AtomicU64,
    pub(super) control: Mutex<Control>,
    /// A commit runs, in the commit thread or in a caller's. Stored under `control` with Release;
    /// Acquire by threads that poll for its end.
    committing: AtomicBool,
    /// Wakes the commit thread: there is a request.
    pub(super) wake: Condvar,
    /// Wakes callers: the gate opened, or a commit ended.
    pub(super) done: Condvar,
    /// Wakes the committer: the last handle left a closed gate, or the callers it waits for came.
    pub(super) left: Condvar,
    pub(super) waiters: Waiters,
    /// The journal refuses everything: it was aborted, or is closed.
    aborted: AtomicBool,
    /// Handles start by the slow path only: after an abort, or where the admission is replaced.
    /// Release and Acquire.
    slow_start: AtomicBool,
    /// The journal is closed, and was not aborted before. Release before `aborted` is set.
    closed: AtomicBool,
    /// Why the journal was aborted.
    cause: OnceLock<Arc<str>>,
    pub(super) interval: Duration,
    /// Credits that a transaction can hand out.
    pub(super) capacity: i64,
    pub(super) log: Log,
    /// Which transactions have fast commits, or may have no more.
    pub(super) fast: FastMarks,
    pub(super) queue: CheckpointQueue,
    /// Newest durable transaction. Set at the commit point, before the objects are notified: a
    /// thread that gets a block freed in it already sees it here. Release by the committer, Acquire
    /// by readers.
    durable: AtomicU64,
    /// Newest complete transaction: durable, and the objects are notified. Release and Acquire.
    complete: AtomicU64,
    /// Stored by the thread with the turn to commit.
    pub(super) counts: CommitCounts,
}

/// In effect no time limit, and short enough to be added to any instant.
const NEVER: Duration = Duration::from_secs(365 * 86_400);

impl Journal {
    pub(crate) fn new(
        cache: Arc<Cache>,
        log: Log,
        interval: Duration,
        admission: &AdmissionFactory,
    ) -> Self {
        let first = log.first_tid();
        let durable = Tid(first.0.wrapping_sub(1));
        let capacity = i64::from(log.capacity());
        let gate = Gate::new(first, admission, capacity);
        let control = Control {
            requested: None,
            starved: 0,
            recalls: 0,
            freezes: 0,
            frozen: false,
            closing: false,
            closes: 0,
            stop: false,
            last_commit: Instant::now(),
            group: CommitGroup::default(),
            fast: FastCallers::default(),
            commit_thread_waits: false,
        };
        Self {
            cache,
            slow_start: AtomicBool::new(gate.replacement.get().is_some()),
            gate,
            budget: CachePadded::new(AtomicI64::new(capacity)),
            reserved: CachePadded::new(AtomicI64::new(0)),
            overruns: AtomicU64::new(0),
            control: Mutex::new(&locks::CONTROL, control),
            committing: AtomicBool::new(false),
            wake: Condvar::new(),
            done: Condvar::new(),
            left: Condvar::new(),
            waiters: Waiters::new(),
            fast: FastMarks::default(),
            aborted: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            cause: OnceLock::new(),
            interval: if interval.is_zero() { NEVER } else { interval },
            capacity,
            log,
            queue: CheckpointQueue::new(),
            durable: AtomicU64::new(u64::from(durable.0)),
            complete: AtomicU64::new(u64::from(durable.0)),
            counts: CommitCounts::default(),
        }
    }

    /// Joins the running transaction with `credits`.
    #[inline]
    pub(crate) fn start(&self, credits: u32) -> Result<Handle<'_>> {
        match self.admit(credits) {
            Some((slot, tid)) => Ok(Handle::new(self, slot, tid, i64::from(credits))),
            None => self.start_waiting(credits),
        }
    }

    /// Runs `work` with a handle of `credits`. The handle is made where it is used, because moving
    /// it costs more than starting it.
    #[inline(always)]
    pub(crate) fn with_handle<R>(
        &self,
        credits: u32,
        work: impl FnOnce(&Handle<'_>) -> R,
    ) -> Result<R> {
        match self.admit(credits) {
            Some((slot, tid)) => {
                let handle = Handle::new(self, slot, tid, i64::from(credits));
                let done = work(&handle);
                handle.stop();
                Ok(done)
            }
            None => Ok(work(&self.start_waiting(credits)?)),
        }
    }

    /// The fast path of a start: pins the caller's slot and takes credits from its lease; `None` if
    /// either fails.
    #[inline(always)]
    fn admit(&self, credits: u32) -> Option<(SlotRef<'_>, Tid)> {
        let n = i64::from(credits);
        if n > self.capacity / 2 || self.slow_start.load(Ordering::Acquire) {
            return None;
        }
        let slot = SlotRef::of_caller(&self.gate.slots);
        // Two branches instead of one result, which the fast path would test again.
        match self.gate.enter_open(slot, Joiner::Ordinary) {
            Some(tid) if slot.take_credits(n) => return Some((slot, tid)),
            None if !injected("gate-checked-early") => {
                if let Some(tid) = self.gate.enter_fenced(slot, Joiner::Ordinary)
                    && slot.take_credits(n)
                {
                    return Some((slot, tid));
                }
            }
            _ => {}
        }
        if self.gate.leave(slot) {
            self.notify_left();
        }
        None
    }

    #[cold]
    fn start_waiting(&self, credits: u32) -> Result<Handle<'_>> {
        if i64::from(credits) > self.capacity / 2 {
            let limit = u32::try_from(self.capacity / 2).unwrap_or(u32::MAX);
            return Err(Error::TooBig { wanted: credits, limit });
        }
        if let Some(replacement) = self.gate.replacement.get() {
            let credits = i64::from(credits);
            let (slot, tid) = self.enter_replaced(replacement, credits, Joiner::Ordinary)?;
            return Ok(Handle::new(self, slot, tid, credits));
        }
        loop {
            let (slot, tid) = self.enter(Joiner::Ordinary)?;
            if self.take_credits(slot, i64::from(credits)) {
                return Ok(Handle::new(self, slot, tid, i64::from(credits)));
            }
            if self.gate.leave(slot) {
                self.notify_left();
            }
            self.wait_for_credits(tid, i64::from(credits))?;
        }
    }

    /// Pins the caller's slot into the first transaction that admits `joiner`.
    #[inline]
    pub(super) fn enter(&self, joiner: Joiner) -> Result<(SlotRef<'_>, Tid)> {
        if let Some(replacement) = self.gate.replacement.get() {
            return self.enter_replaced(replacement, 0, joiner);
        }
        let slot = SlotRef::of_caller(&self.gate.slots);
        loop {
            self.check()?;
            if let Some(tid) = self.gate.enter(slot, joiner) {
                return Ok((slot, tid));
            }
            if self.gate.leave(slot) {
                self.notify_left();
            }
            self.wait_for_gate(joiner);
        }
    }

    fn wait_for_gate(&self, joiner: Joiner) {
        let admits = || self.gate.load().0.access().admits(joiner);
        if gate::poll(admits) {
            return;
        }
        let mut control = self.control.lock();
        while !admits() && !self.is_aborted() {
            self.done.wait(&mut control);
        }
    }

    /// Joins by a replacement, with `credits`. A transaction that has fewer left is committed.
    #[cold]
    fn enter_replaced(
        &self,
        replacement: &dyn Admission,
        credits: i64,
        joiner: Joiner,
    ) -> Result<(SlotRef<'_>, Tid)> {
        loop {
            self.check()?;
            match replacement.start(credits, joiner) {
                Joined::Inside(tid) => return Ok((SlotRef::for_lists(&self.gate.slots), tid)),
                Joined::Refused => self.wait_for_gate(joiner),
                Joined::Full(tid) => {
                    let mut control = self.control.lock();
                    self.request(&mut control, tid);
                    while self.gate.load() == (GateState::Open, tid) && !self.is_aborted() {
                        self.done.wait(&mut control);
                    }
                }
            }
        }
    }

    /// Ends what `admit` or `enter` began, with `unused` credits.
    #[inline(always)]
    pub(super) fn leave(&self, slot: SlotRef<'_>, unused: i64) {
        if slot.is_owned() {
            slot.give_credits(unused);
            if self.gate.leave(slot) {
                self.notify_left();
            }
        } else {
            self.leave_slowly(slot, unused);
        }
    }

    #[cold]
    fn leave_slowly(&self, slot: SlotRef<'_>, unused: i64) {
        let awaited = match self.gate.replacement.get() {
            Some(replacement) => replacement.stop(unused),
            None => {
                self.give_credits(slot, unused);
                self.gate.leave(slot)
            }
        };
        if awaited {
            self.notify_left();
        }
    }

    /// Moves credits from the slot's lease, or from the budget, to a handle.
    #[inline]
    pub(super) fn take_credits(&self, slot: SlotRef<'_>, n: i64) -> bool {
        slot.take_credits(n) || self.lease_credits(slot, n)
    }

    #[cold]
    fn lease_credits(&self, slot: SlotRef<'_>, n: i64) -> bool {
        if let Some(replacement) = self.gate.replacement.get() {
            return replacement.take(n);
        }
        // A share of the remaining half for each used slot, so that a handle seldom starves beside
        // idle leases: to recall those, the committer closes the gate.
        let used: i64 = must_fit(self.gate.slots.used().count());
        let shares = 2 * used;
        let share = self.budget.load(Ordering::Relaxed) / shares.max(1);
        let batch = share.min(self.capacity >> LEASE_SHIFT).max(n);
        if batch > n && self.take_budget(batch) {
            self.give_credits(slot, batch - n);
            return true;
        }
        self.take_budget(n)
    }

    /// Takes back credits that a handle did not use.
    #[inline]
    pub(super) fn give_credits(&self, slot: SlotRef<'_>, n: i64) {
        if !slot.give_credits(n) {
            self.budget.fetch_add(n, Ordering::Relaxed);
        }
    }

    fn take_budget(&self, n: i64) -> bool {
        let before = self.budget.fetch_sub(n, Ordering::Relaxed);
        if before >= n {
            return true;
        }
        self.budget.fetch_add(n, Ordering::Relaxed);
        false
    }

    /// Gives a new transaction its budget. Only the committer, while the gate is closed.
    pub(super) fn reset_budget(&self) {
        let idle: i64 = self.gate.slots.all().map(JournalSlot::end_lease).sum();
        let reserved = self.reserved.load(Ordering::Relaxed);
        self.assert_credits(idle, reserved);
        if let Some(replacement) = self.gate.replacement.get() {
            replacement.reset(reserved);
        }
        self.budget.store(self.capacity - reserved, Ordering::Relaxed);
    }

    /// J1 and J5. No handle is inside, so handles have returned all credits that they did not use.
    fn assert_credits(&self, idle: i64, reserved: i64) {
        let left = match self.gate.replacement.get() {
            Some(replacement) => replacement.left(),
            None => self.budget.load(Ordering::Relaxed) + idle,
        };
        let overdrawn = left < 0 && self.overruns() == 0;
        debug_assert!(!overdrawn && left <= self.capacity, "J1: {left} of {}", self.capacity);
        debug_assert!((0..=self.capacity / 2).contains(&reserved), "J5: {reserved} set aside");
    }

    /// Ends all leases; whether the budget then has `n` credits and at least a quarter of the
    /// transaction. Only the committer, while the gate is closed.
    pub(super) fn recall_leases(&self, n: i64) -> bool {
        if let Some(replacement) = self.gate.replacement.get() {
            return replacement.left() >= n.max(self.capacity / 4);
        }
        let idle: i64 = self.gate.slots.used().map(JournalSlot::end_lease).sum();
        let left = self.budget.fetch_add(idle, Ordering::Relaxed) + idle;
        left >= n.max(self.capacity / 4)
    }

    /// Sets credits aside for a handle in `slot`, at most half of a transaction in all (J5).
    pub(super) fn reserve(&self, slot: SlotRef<'_>, n: u32) -> Option<Reservation<'_>> {
        let n = i64::from(n);
        if self.reserved.fetch_add(n, Ordering::Relaxed) + n > self.capacity / 2 {
            self.reserved.fetch_sub(n, Ordering::Relaxed);
            return None;
        }
        if !self.take_credits(slot, n) {
            self.reserved.fetch_sub(n, Ordering::Relaxed);
            return None;
        }
        Some(Reservation::new(self, n))
    }

    /// A reservation of `credits` ended, or its credits became a handle's.
    pub(super) fn unreserve(&self, credits: i64) {
        self.reserved.fetch_sub(credits, Ordering::Relaxed);
    }

    /// Has unused leases recalled, or `tid` committed, for a handle of `tid` that found fewer than
    /// `n` credits.
    fn wait_for_credits(&self, tid: Tid, n: i64) -> Result<()> {
        let mut control = self.control.lock();
        let round = control.recalls;
        control.starved = control.starved.max(n);
        self.wake.notify_all();
        self.left.notify_all();
        while self.gate.is_open(tid) && control.recalls == round && !self.is_aborted() {
            self.done.wait(&mut control);
        }
        drop(control);
        self.check()
    }

    fn request(&self, control: &mut Control, tid: Tid) {
        if control.requested.is_none_or(|r| tid.is_after(r)) {
            control.requested = Some(tid);
            if !self.is_committing() {
                self.wake.notify_all();
            }
        }
    }

    /// Makes `tid` durable, and the blocks freed in it usable. Callers of one transaction share its
    /// commit; a caller that finds no commit under way leads it itself.
    pub(crate) fn commit(&self, tid: Tid) -> Result<()> {
        let tid = self.last_changed(tid);
        if self.is_complete(tid) {
            return Ok(());
        }
        let returned = self.waiters.note(tid);
        let mut control = self.control.lock();
        if control.group.join(tid, returned) && self.is_committing() {
            self.left.notify_all();
        }
        while self.is_committing() {
            // The commit may end soon, and the caller may lead the next one.
            let usual = control.group.usual();
            drop(control);
            let ended = gate::poll_for(usual, || self.is_complete(tid) || !self.is_committing());
            if self.is_complete(tid) {
                return Ok(());
            }
            control = self.control.lock();
            if !ended {
                break;
            }
        }
        if self.may_lead(&control, tid) {
            control.requested = Some(tid);
            super::commit::lead(self, control);
        } else {
            self.request(&mut control, tid);
            drop(control);
        }
        let over = || self.is_complete(tid) || self.is_aborted();
        if !gate::poll(over) {
            self.waiters.sleep(tid, over);
        }
        if self.is_complete(tid) { Ok(()) } else { self.check() }
    }

    /// The last transaction up to `tid` that can hold a change. Behind a frozen gate there is none,
    /// and the commit of that transaction would wait for the thaw.
    fn last_changed(&self, tid: Tid) -> Tid {
        match self.gate.load() {
            (GateState::Frozen, shut) if shut == tid => Tid(tid.0.wrapping_sub(1)),
            _ => tid,
        }
    }

    pub(super) fn is_committing(&self) -> bool {
        self.committing.load(Ordering::Acquire)
    }

    /// A commit begins, or has ended.
    pub(super) fn set_committing(&self, _: &Control, yes: bool) {
        self.committing.store(yes, Ordering::Release);
    }

    /// A commit has ended, and everything up to `done` is committed: wakes the commit thread if
    /// there are new requests.
    pub(super) fn wake_if_wanted(&self, control: &Control, done: Tid) {
        let asked = control.requested.is_some_and(|r| r.is_after(done));
        let other = control.starved > 0 || control.freezes > 0 || control.stop;
        if asked || other || control.commit_thread_waits {
            self.wake.notify_all();
        }
    }

    /// Whether the caller may commit `tid` itself, now.
    fn may_lead(&self, control: &Control, tid: Tid) -> bool {
        let idle = !self.is_committing() && !control.stop && !self.is_aborted();
        idle && control.freezes == 0
            && control.starved == 0
            && matches!(self.gate.load(), (state, now) if state.is_open() && now == tid)
    }

    /// Makes all earlier changes durable, and all earlier writes to the device stable.
    pub(crate) fn sync_all(&self) -> Result<()> {
        let before = self.gate.load();
        let tid = before.1;
        let quiet = before.0.is_open() && !self.has_changes();
        if (quiet || before.0 == GateState::Frozen) && self.gate.load() == before {
            // The committer closes the gate before it clears `used` of the slots.
            self.check()?;
            self.commit(Tid(tid.0.wrapping_sub(1)))?;
            return self.cache.flushes().flush();
        }
        self.commit(tid)
    }

    /// Asks for a commit of the running transaction without waiting.
    pub(crate) fn commit_soon(&self) {
        let (_, tid) = self.gate.load();
        let mut control = self.control.lock();
        self.request(&mut control, tid);
    }

    pub(crate) fn is_durable(&self, tid: Tid) -> bool {
        Tid(low_half(self.durable.load(Ordering::Acquire))).is_at_least(tid)
    }

    /// The commit point is passed.
    pub(super) fn set_durable(&self, tid: Tid) {
        self.durable.store(u64::from(tid.0), Ordering::Release);
    }

    /// The objects of `tid` are notified: wakes its waiters.
    pub(super) fn set_complete(&self, tid: Tid) {
        self.complete.store(u64::from(tid.0), Ordering::Release);
        self.waiters.wake(tid);
    }

    pub(super) fn is_complete(&self, tid: Tid) -> bool {
        Tid(low_half(self.complete.load(Ordering::Acquire))).is_at_least(tid)
    }

    pub(crate) fn running(&self) -> Tid {
        self.gate.load().1
    }

    /// Whether the running transaction has changed anything.
    pub(super) fn has_changes(&self) -> bool {
        self.gate.slots.used().any(|slot| slot.used.load(Ordering::Acquire))
    }

    pub(crate) fn is_logged(&self) -> bool {
        matches!(self.log, Log::Jbd2(_))
    }

    pub(crate) fn capacity(&self) -> u32 {
        u32::try_from(self.capacity).unwrap_or(u32::MAX)
    }

    pub(super) fn notify_left(&self) {
        gate::notify(&self.control, &self.left);
    }

    pub(super) fn count_overrun(&self) {
        self.overruns.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn overruns(&self) -> u64 {
        self.overruns.load(Ordering::Relaxed)
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// The error that every call gets after an abort or a close.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.is_aborted() {
            return Ok(());
        }
        // An abort sets the cause first, so without a cause the journal is closed, or was until a
        // moment ago.
        let cause = self.cause.get().filter(|_| !self.closed.load(Ordering::Acquire));
        Err(cause.map_or(Error::ReadOnly, |cause| Error::Aborted(cause.clone())))
    }

    /// The first cause of an abort; none while the journal works and after an orderly end.
    pub(super) fn abort_cause(&self) -> Option<String> {
        let closed = self.closed.load(Ordering::Acquire);
        self.cause.get().filter(|_| !closed).map(|cause| cause.to_string())
    }

    /// Stops the journal because the store is closed, unless it was aborted before. Only
    /// [`reopen`](Self::reopen) undoes that.
    pub(crate) fn close(&self) {
        if !self.is_aborted() {
            self.closed.store(true, Ordering::Release);
            self.refuse_all();
        }
    }

    /// Undoes a close: the log is in use again, and handles join from the next transaction on. The
    /// caller then starts the threads, and no other thread closes or reopens meanwhile.
    ///
    /// | step | action |
    /// |---|---|
    /// | 1 | the log is marked in use; from then on a crash leaves a log to be replayed |
    /// | 2 | requests and freezes from before the close are dropped |
    /// | 3 | the journal refuses no more; handles that come wait at the frozen gate |
    /// | 4 | the gate opens |
    ///
    /// # Errors
    ///
    /// `Io`, `Corrupt`, or `Aborted` if the journal was aborted; it refuses everything then.
    pub(crate) fn reopen(&self) -> Result<()> {
        let tid = self.next_tid();
        self.log.mark_used(tid)?;
        self.queue.restart();
        // The gate has been frozen since the last commit, so no handle is inside.
        self.reset_budget();
        let mut control = self.control.lock();
        control.restart();
        // A concurrent abort sets `cause`, then both flags. These swaps read its stores, and then
        // `cause` is set here too, or its stores come after the swaps.
        self.slow_start.swap(self.gate.replacement.get().is_some(), Ordering::AcqRel);
        self.aborted.swap(false, Ordering::AcqRel);
        self.closed.store(false, Ordering::Release);
        if self.cause.get().is_some() {
            drop(control);
            self.refuse_all();
            return self.check();
        }
        self.gate.open(tid);
        self.done.notify_all();
        Ok(())
    }

    /// Closes a journal that no thread has used yet.
    pub(crate) fn begin_closed(&self) {
        self.gate.freeze(self.running());
        self.close();
    }

    /// The transaction that follows the last commit.
    fn next_tid(&self) -> Tid {
        let tid = self.running();
        // A close without changes ends the running transaction itself.
        if self.is_complete(tid) { tid.next() } else { tid }
    }

    /// Stops the journal for good because of `error`, and records that in the log.
    pub(super) fn fail(&self, error: &Error) {
        self.abort(&error.to_string());
        self.log.record_error();
    }

    /// Stops the journal for good. Later calls report the first cause.
    pub(crate) fn abort(&self, cause: &str) {
        let _ = self.cause.set(Arc::from(cause));
        self.refuse_all();
    }

    /// Refuses everything from now on, and wakes all threads that wait.
    fn refuse_all(&self) {
        self.aborted.store(true, Ordering::Release);
        self.slow_start.store(true, Ordering::Release);
        let control = self.control.lock();
        self.wake.notify_all();
        self.done.notify_all();
        self.left.notify_all();
        drop(control);
        for tid in [0, 1] {
            self.waiters.wake(Tid(tid));
        }
        self.queue.wake_all();
    }

    /// Makes everything durable and keeps new handles out until `thaw`.
    pub(crate) fn freeze(&self) -> Result<()> {
        self.check()?;
        let mut control = self.control.lock();
        if control.closing {
            return Err(Error::ReadOnly);
        }
        control.freezes += 1;
        self.wake.notify_all();
        let closes = control.closes;
        while !control.frozen {
            if let Err(error) = self.check() {
                control.freezes = control.freezes.saturating_sub(1);
                return Err(error);
            }
            self.done.wait(&mut control);
            if control.closes != closes {
                // The close has ended all freezes.
                return Err(Error::ReadOnly);
            }
        }
        Ok(())
    }

    /// Ends one freeze; false if there was none.
    pub(crate) fn thaw(&self) -> bool {
        let mut control = self.control.lock();
        if control.freezes == 0 {
            return false;
        }
        control.freezes -= 1;
        self.wake.notify_all();
        true
    }
}
