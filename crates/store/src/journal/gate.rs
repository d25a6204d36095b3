//! Which transaction handles may join, and who is inside.
//!
//! Protocol: the read side of a per-core reader-writer lock. A handle pins its
//! slot (a plain store: the slot is its thread's own), passes a light barrier
//! and loads the gate word: if it is open the handle is inside, else it unpins
//! and waits. The commit stores Locked, passes a heavy barrier, then reads every
//! slot's pins. A light and a heavy barrier order like two full fences, so either
//! the commit sees the pin, or the handle sees Locked: nobody is inside unseen.
//! Leaving is the same the other way round: unpin (Release, which hands what the
//! handle did to the commit), light barrier, load; so either the commit sees no
//! pin, or the one who leaves sees a closed gate and wakes it. A pin always
//! belongs to the word's transaction, since the word moves on only at zero pins.
//!
//! Threads beyond the number of slots share them; they pin in a second counter
//! of the slot, by read-modify-writes, under the same protocol.

use super::admission::GateSpec;
use super::museum::Museum;
use super::slot::{Place, Slot};
use nextent_ondisk::Tid;
use nextent_sync::atomic::{AtomicU64, Ordering};
use nextent_sync::{
    CachePadded, Condvar, Mutex, MutexGuard, PerCore, heavy_barrier, light_barrier,
};
use std::time::Duration;

/// State of the running transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Running,
    Locked,
    Switch,
    /// Held closed by a freeze.
    Frozen,
}

/// The word that every handle reads and only a commit writes.
pub(super) struct Gate {
    word: CachePadded<AtomicU64>,
    pub(super) slots: PerCore<Slot>,
    /// A gate of the past, by which handles come and go instead of by their slots' pins. The word
    /// follows its state.
    pub(super) museum: Option<Museum>,
}

impl Gate {
    pub(super) fn new(tid: Tid, spec: GateSpec, capacity: i64) -> Self {
        Self {
            museum: Museum::new(spec, tid, capacity),
            word: CachePadded::new(AtomicU64::new(pack(State::Running, tid))),
            slots: PerCore::new(|_| Slot::new()),
        }
    }

    pub(super) fn load(&self) -> (State, Tid) {
        // Acquire: what the commit prepared for the transaction is seen by its handles.
        unpack(self.word.load(Ordering::Acquire))
    }

    /// Pins the caller's place into the running transaction, if it may join.
    #[inline(always)]
    pub(super) fn enter(&self, place: Place<'_>, may: fn(State) -> bool) -> Option<Tid> {
        place.pin();
        light_barrier();
        let (state, tid) = self.load();
        may(state).then_some(tid)
    }

    /// Undoes `enter`; true if a commit may be waiting for this.
    #[inline(always)]
    pub(super) fn leave(&self, place: Place<'_>) -> bool {
        place.unpin();
        light_barrier();
        self.load().0 != State::Running
    }

    /// Closes the gate to new handles and waits until the last has left.
    ///
    /// `control` guards the condition `left`; those who leave a closed gate
    /// take it before they notify, so no wake-up is lost.
    pub(super) fn drain<T>(&self, tid: Tid, control: &mut MutexGuard<'_, T>, left: &Condvar) {
        loop {
            self.store(State::Locked, tid);
            heavy_barrier();
            while self.is_entered() {
                // The timeout is for a slot first used while we wait.
                left.wait_for(control, Duration::from_millis(20));
            }
            // A reserved handle may still have joined: shut it out and look again.
            if self.switch(tid) {
                return;
            }
        }
    }

    /// Shuts everyone out; false if somebody is inside still.
    fn switch(&self, tid: Tid) -> bool {
        if let Some(museum) = &self.museum {
            let switched = museum.switch(tid);
            if switched {
                self.word.store(pack(State::Switch, tid), Ordering::Release);
            }
            return switched;
        }
        self.store(State::Switch, tid);
        heavy_barrier();
        !self.is_entered()
    }

    /// Lets handles join `tid`.
    pub(super) fn open(&self, tid: Tid) {
        self.store(State::Running, tid);
    }

    /// Keeps everyone out of `tid` until `open`.
    pub(super) fn freeze(&self, tid: Tid) {
        self.store(State::Frozen, tid);
    }

    /// Whether a handle is inside.
    pub(super) fn is_entered(&self) -> bool {
        match &self.museum {
            Some(museum) => museum.is_entered(),
            None => self.slots.used().any(Slot::is_pinned),
        }
    }

    fn store(&self, state: State, tid: Tid) {
        // First, so that who has seen the word open finds the gate open.
        if let Some(museum) = &self.museum {
            museum.set(state, tid);
        }
        self.word.store(pack(state, tid), Ordering::Release);
    }
}

/// Whether an ordinary handle may join.
pub(super) fn ordinary(state: State) -> bool {
    state == State::Running
}

/// Whether a handle whose credits were set aside may join.
pub(super) fn reserved(state: State) -> bool {
    matches!(state, State::Running | State::Locked)
}

fn pack(state: State, tid: Tid) -> u64 {
    (state as u64) << 32 | u64::from(tid.0)
}

fn unpack(word: u64) -> (State, Tid) {
    let state = match word >> 32 {
        0 => State::Running,
        1 => State::Locked,
        2 => State::Switch,
        _ => State::Frozen,
    };
    (state, Tid(word as u32))
}

/// Takes and drops the control lock, so that a waiter who has checked its
/// condition is asleep before the notification.
pub(super) fn notify<T>(control: &Mutex<T>, condition: &Condvar) {
    drop(control.lock());
    condition.notify_all();
}
