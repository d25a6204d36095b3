//! Group conversion: one thread converts the writes of several transfers in one handle.
//!
//! A conversion holds a handle and the map exclusively, so concurrent conversions of one file would
//! only wait for each other. They use leader and follower roles, as in group commit:
//!
//! 1. A thread that finds no leader becomes the leader and converts its own write first.
//! 2. A thread that finds a leader adds its write to the pending batch and waits.
//! 3. The leader converts the pending batch in one handle, and repeats that at most [`MAX_BATCHES`]
//!    times. Then it wakes one follower, which becomes the next leader.
//!
//! A caller that must not wait ([`join`](GroupConversion::join), [`poll`](GroupConversion::poll))
//! polls its ticket later. If there is no leader by then, the polling thread becomes the leader.
//!
//! If a batch fails, each of its followers converts its own write again, so that an error reaches
//! only the transfer that caused it.

use std::ops::Range;

use nextent_ondisk::FileBlock;
use nextent_sync::atomic::{AtomicU8, Ordering};
use nextent_sync::{Arc, Condvar, Mutex, MutexGuard, thread};

use super::super::locks;

/// Batches of followers that one leader converts at most.
const MAX_BATCHES: usize = 8;

/// How often a follower yields before it sleeps.
const YIELDS: u32 = 30;

/// A write whose data is on the device and whose blocks are not yet converted.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingConversion {
    /// Blocks that may still be marked unwritten.
    pub(crate) blocks: Vec<Range<FileBlock>>,
    /// The least size of the file after the conversion.
    pub(crate) size: u64,
}

impl PendingConversion {
    pub(crate) fn merge(&mut self, other: Self) {
        self.blocks.extend(other.blocks);
        self.size = self.size.max(other.size);
    }
}

/// Writes that several followers have joined.
struct Batch {
    /// One of [`OPEN`], [`DONE`] and [`FAILED`]. Release when stored, Acquire when loaded.
    outcome: AtomicU8,
    /// Followers sleep here until the batch has ended or there is no leader. With
    /// `[inode.group-conversion]`.
    changed: Condvar,
}

const OPEN: u8 = 0;
const DONE: u8 = 1;
const FAILED: u8 = 2;

struct GroupState {
    /// Some thread is converting.
    has_leader: bool,
    /// The writes of `batch`.
    pending: PendingConversion,
    batch: Option<Arc<Batch>>,
}

/// The group conversion of one file.
pub(crate) struct GroupConversion {
    /// [inode.group-conversion] Not held during a conversion.
    state: Mutex<GroupState>,
}

/// A follower's write, as part of a batch.
pub(crate) struct Ticket(Arc<Batch>);

/// The caller's role.
pub(crate) enum Role<'c> {
    /// The caller converts its own write, then the pending batches.
    Lead(Leader<'c>),
    /// The current leader converts the caller's write.
    Follow(Ticket),
}

/// The leader's role; dropping it ends the role, also after a panic.
pub(crate) struct Leader<'c> {
    group: &'c GroupConversion,
    /// The batch that is being converted.
    batch: Option<Arc<Batch>>,
}

impl GroupConversion {
    pub(super) fn new() -> Self {
        let state =
            GroupState { has_leader: false, pending: PendingConversion::default(), batch: None };
        Self { state: Mutex::new(&locks::GROUP_CONVERSION, state) }
    }

    /// Converts `own` on this thread or by the current leader.
    ///
    /// # Errors
    /// The error of `work` for `own` alone.
    pub(crate) fn run<E>(
        &self,
        own: PendingConversion,
        mut work: impl FnMut(PendingConversion) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.join(&own) {
            Role::Lead(mut leader) => {
                let done = work(own);
                leader.convert_pending(&mut work);
                done
            }
            Role::Follow(ticket) => match self.wait(&ticket, &mut work) {
                true => Ok(()),
                false => work(own),
            },
        }
    }

    /// Makes the caller the leader if there is none, else adds `own` to the pending batch.
    pub(crate) fn join(&self, own: &PendingConversion) -> Role<'_> {
        let mut state = self.state.lock();
        if !state.has_leader {
            state.has_leader = true;
            return Role::Lead(Leader { group: self, batch: None });
        }
        state.pending.merge(own.clone());
        Role::Follow(Ticket(Arc::clone(state.batch.get_or_insert_with(|| Arc::new(Batch::new())))))
    }

    /// Returns whether the write of `ticket` was converted, or `None` while a leader is converting
    /// it. Without a leader the caller becomes the leader and converts with `work`.
    pub(crate) fn poll<E>(
        &self,
        ticket: &Ticket,
        work: &mut impl FnMut(PendingConversion) -> Result<(), E>,
    ) -> Option<bool> {
        if let Some(outcome) = ticket.outcome() {
            return Some(outcome);
        }
        let state = self.state.lock();
        if ticket.outcome().is_none() && state.has_leader {
            return None;
        }
        Some(self.lead(state, ticket, work))
    }

    /// Like [`poll`](Self::poll), but waits for the leader.
    pub(crate) fn wait<E>(
        &self,
        ticket: &Ticket,
        work: &mut impl FnMut(PendingConversion) -> Result<(), E>,
    ) -> bool {
        // A conversion takes less time than sleeping and being woken.
        for _ in 0..YIELDS {
            if let Some(outcome) = ticket.outcome() {
                return outcome;
            }
            thread::yield_now();
        }
        let mut state = self.state.lock();
        while ticket.outcome().is_none() && state.has_leader {
            ticket.0.changed.wait(&mut state);
        }
        self.lead(state, ticket, work)
    }

    /// Returns the outcome if there is one. Otherwise there is no leader, and the caller becomes
    /// it.
    fn lead<E>(
        &self,
        mut state: MutexGuard<'_, GroupState>,
        ticket: &Ticket,
        work: &mut impl FnMut(PendingConversion) -> Result<(), E>,
    ) -> bool {
        if let Some(outcome) = ticket.outcome() {
            return outcome;
        }
        state.has_leader = true;
        drop(state);
        Leader { group: self, batch: None }.convert_pending(work);
        // The first batch that it converted contained its own write.
        ticket.outcome() == Some(true)
    }
}
impl Leader<'_> {
    /// Converts the pending batches.
    pub(crate) fn convert_pending<E>(
        &mut self,
        work: &mut impl FnMut(PendingConversion) -> Result<(), E>,
    ) {
        for _ in 0..MAX_BATCHES {
            let mut state = self.group.state.lock();
            let Some(batch) = state.batch.take() else { return };
            let pending = std::mem::take(&mut state.pending);
            drop(state);
            self.batch = Some(batch);
            let outcome = if work(pending).is_ok() { DONE } else { FAILED };
            self.publish(outcome);
        }
    }

    fn publish(&mut self, outcome: u8) {
        if let Some(batch) = self.batch.take() {
            // The store is under the lock, so a follower that is about to sleep cannot miss it.
            let state = self.group.state.lock();
            batch.outcome.store(outcome, Ordering::Release);
            drop(state);
            batch.changed.notify_all();
        }
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        self.publish(FAILED);
        let mut state = self.group.state.lock();
        state.has_leader = false;
        let next = state.batch.clone();
        drop(state);
        if let Some(batch) = next {
            // The woken follower becomes the leader unless another thread already is.
            batch.changed.notify_one();
        }
    }
}

impl Ticket {
    /// The outcome, once the batch has ended.
    fn outcome(&self) -> Option<bool> {
        match self.0.outcome.load(Ordering::Acquire) {
            OPEN => None,
            outcome => Some(outcome == DONE),
        }
    }
}

impl Batch {
    fn new() -> Self {
        Self { outcome: AtomicU8::new(OPEN), changed: Condvar::new() }
    }
}
