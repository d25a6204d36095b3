//! One transfer converts for all that have finished meanwhile.
//!
//! Converting takes a handle and the map for itself, so transfers that finish at the same time
//! would only wait for each other. Whoever finds nobody at it does its own; who comes meanwhile
//! leaves what it wrote and sleeps, and the one at work takes all of that together, in one handle,
//! before it goes. After [`ROUNDS`] of them it leaves the rest to one of those who wait.
//!
//! Who need not wait ([`offer`](Combiner::offer), [`ask`](Combiner::ask)) goes on with other
//! things, and asks later; if by then nobody is at it, the one who asks does it.
//!
//! When work for several fails, each is told so and does its own again: an error belongs to one.

use std::ops::Range;

use nextent_ondisk::FileBlock;
use nextent_sync::atomic::{AtomicU8, Ordering};
use nextent_sync::{Arc, Condvar, Mutex, MutexGuard, thread};

use super::super::locks;

/// Most batches that one does for others.
const ROUNDS: usize = 8;

/// How often one who waits lets others run before it sleeps.
const TURNS: u32 = 30;

/// What a transfer has written, data on the device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Finished {
    /// Blocks that may be unwritten and hold data now.
    pub(crate) blocks: Vec<Range<FileBlock>>,
    /// The size that the file has at least, with it.
    pub(crate) size: u64,
}

impl Finished {
    pub(crate) fn take_in(&mut self, other: Self) {
        self.blocks.extend(other.blocks);
        self.size = self.size.max(other.size);
    }
}

/// What several left together.
struct Batch {
    /// What came of it. Release when stored, Acquire when loaded.
    outcome: AtomicU8,
    /// For those who sleep until it is over, or until nobody is at work. With `[inode.finish]`.
    changed: Condvar,
}

const OPEN: u8 = 0;
const DONE: u8 = 1;
const FAILED: u8 = 2;

struct State {
    /// Somebody is at work.
    busy: bool,
    /// What others left, and how they hear of it.
    pending: Finished,
    batch: Option<Arc<Batch>>,
}

/// Who converts for whom, of one file.
pub(crate) struct Combiner {
    /// [inode.finish] Never held while working.
    state: Mutex<State>,
}

/// What a transfer left to others is known by.
pub(crate) struct Ticket(Arc<Batch>);

/// Who does what was offered.
pub(crate) enum Offered<'c> {
    /// The caller, who then serves those who came meanwhile.
    Mine(AtWork<'c>),
    /// Whoever is at work.
    Left(Ticket),
}

/// Says that nobody is at work any more, also after a panic.
pub(crate) struct AtWork<'c> {
    combiner: &'c Combiner,
    /// The batch whose outcome is not told yet.
    batch: Option<Arc<Batch>>,
}

impl Combiner {
    pub(super) fn new() -> Self {
        let state = State { busy: false, pending: Finished::default(), batch: None };
        Self { state: Mutex::new(&locks::FINISH, state) }
    }

    /// Has `own` done, by `work` on this thread or by another's.
    ///
    /// # Errors
    /// What `work` says of `own` alone.
    pub(crate) fn run<E>(
        &self,
        own: Finished,
        mut work: impl FnMut(Finished) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.offer(&own) {
            Offered::Mine(mut at_work) => {
                let done = work(own);
                at_work.serve(&mut work);
                done
            }
            Offered::Left(ticket) => match self.settle(&ticket, &mut work) {
                true => Ok(()),
                false => work(own),
            },
        }
    }

    /// Lets the caller do `own` if nobody is at work, else leaves it to whoever is.
    pub(crate) fn offer(&self, own: &Finished) -> Offered<'_> {
        let mut state = self.state.lock();
        if !state.busy {
            state.busy = true;
            return Offered::Mine(AtWork { combiner: self, batch: None });
        }
        state.pending.take_in(own.clone());
        Offered::Left(Ticket(Arc::clone(state.batch.get_or_insert_with(|| Arc::new(Batch::new())))))
    }

    /// Whether what was left is done; none if it is not yet, and somebody is at it. If nobody is,
    /// it is done now, with `work`.
    pub(crate) fn ask<E>(
        &self,
        ticket: &Ticket,
        work: &mut impl FnMut(Finished) -> Result<(), E>,
    ) -> Option<bool> {
        if let Some(outcome) = ticket.outcome() {
            return Some(outcome);
        }
        let state = self.state.lock();
        if ticket.outcome().is_none() && state.busy {
            return None;
        }
        Some(self.take_over(state, ticket, work))
    }

    /// The same, waiting for who is at it.
    pub(crate) fn settle<E>(
        &self,
        ticket: &Ticket,
        work: &mut impl FnMut(Finished) -> Result<(), E>,
    ) -> bool {
        // A conversion is shorter than falling asleep and being woken.
        for _ in 0..TURNS {
            if let Some(outcome) = ticket.outcome() {
                return outcome;
            }
            thread::yield_now();
        }
        let mut state = self.state.lock();
        while ticket.outcome().is_none() && state.busy {
            ticket.0.changed.wait(&mut state);
        }
        self.take_over(state, ticket, work)
    }

    /// The outcome, which is there, or that of doing it: nobody is at work.
    fn take_over<E>(
        &self,
        mut state: MutexGuard<'_, State>,
        ticket: &Ticket,
        work: &mut impl FnMut(Finished) -> Result<(), E>,
    ) -> bool {
        if let Some(outcome) = ticket.outcome() {
            return outcome;
        }
        state.busy = true;
        drop(state);
        AtWork { combiner: self, batch: None }.serve(work);
        // Its own was among the first that it served.
        ticket.outcome() == Some(true)
    }
}
impl AtWork<'_> {
    /// Does what others left.
    pub(crate) fn serve<E>(&mut self, work: &mut impl FnMut(Finished) -> Result<(), E>) {
        for _ in 0..ROUNDS {
            let mut state = self.combiner.state.lock();
            let Some(batch) = state.batch.take() else { return };
            let pending = std::mem::take(&mut state.pending);
            drop(state);
            self.batch = Some(batch);
            let outcome = if work(pending).is_ok() { DONE } else { FAILED };
            self.tell(outcome);
        }
    }

    fn tell(&mut self, outcome: u8) {
        if let Some(batch) = self.batch.take() {
            // Under the lock, so that nobody looks and then sleeps past it.
            let state = self.combiner.state.lock();
            batch.outcome.store(outcome, Ordering::Release);
            drop(state);
            batch.changed.notify_all();
        }
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.tell(FAILED);
        let mut state = self.combiner.state.lock();
        state.busy = false;
        let next = state.batch.clone();
        drop(state);
        if let Some(batch) = next {
            // One of them takes over, unless somebody has by then.
            batch.changed.notify_one();
        }
    }
}

impl Ticket {
    /// Whether it was done, if it is over.
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
