//! The gates that jbd2 had, beside the one of slots.
//!
//! | gate | start | stop |
//! |---|---|---|
//! | `StateLock` | `[museum.j-state]`, in it `[museum.t-handle]` | the same |
//! | the same, hacked | the same | `[museum.t-handle]` |
//! | `RwLock` | `[museum.j-state-rw]` read; four read-modify-writes of one line | two of them |
//!
//! What they guard is what jbd2 guards by them: the state of the running transaction, the credits
//! that its handles hold, how many handles are inside, how many there were. They keep what the gate
//! of slots keeps:
//!
//! - J1: credits held and set aside never exceed what a transaction has ([`take`](Museum::take)).
//! - J2: nobody joins a transaction that is not Running; with credits set aside, one that drains.
//! - J3: a commit goes on only when nobody is inside ([`drain`](Museum::drain)).
//!
//! The log's space (J4), the share that may be set aside (J5) and aborts (J6) are the journal's,
//! whatever the gate. What is changed is listed by slot in every design.

mod rw_lock;
mod state_lock;

use super::admission::{Admission, GateSpec};
use super::gate::State;
use nextent_ondisk::Tid;
use rw_lock::RwGate;
use state_lock::StateGate;

/// One of jbd2's gates.
pub(super) enum Museum {
    State(Box<StateGate>),
    Rw(Box<RwGate>),
}

/// What came of an attempt to join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// Inside this transaction, with the credits.
    Inside(Tid),
    /// Its state shuts the caller out.
    Closed,
    /// This transaction is open and has not so many credits left.
    Full(Tid),
}

/// Which transaction runs, and whether it may be joined.
#[derive(Clone, Copy, Debug)]
struct Running {
    state: State,
    tid: Tid,
}

impl Museum {
    /// The gate that `spec` names, `tid` being open with `capacity` credits; none for slots.
    pub(super) fn new(spec: GateSpec, tid: Tid, capacity: i64) -> Option<Self> {
        let state = |hacked| {
            let gate = StateGate::new(spec.locks, hacked, tid, capacity);
            Some(Self::State(Box::new(gate)))
        };
        match spec.admission {
            Admission::Slots => None,
            Admission::StateLock => state(false),
            Admission::StateLockHack => state(true),
            Admission::RwLock => Some(Self::Rw(Box::new(RwGate::new(spec.locks, tid, capacity)))),
        }
    }

    /// Joins the running transaction with `credits`, if it is in a state that `may` allows and has
    /// so many.
    pub(super) fn start(&self, credits: i64, may: fn(State) -> bool) -> Joined {
        match self {
            Self::State(gate) => gate.start(credits, may),
            Self::Rw(gate) => gate.start(credits, may),
        }
    }

    /// Leaves with `unused` credits; true if a commit waits for the last to leave, which this was.
    pub(super) fn stop(&self, unused: i64) -> bool {
        match self {
            Self::State(gate) => gate.stop(unused),
            Self::Rw(gate) => gate.stop(unused),
        }
    }

    /// Takes `n` more credits for a handle that is inside, or to set them aside.
    pub(super) fn take(&self, n: i64) -> bool {
        match self {
            Self::State(gate) => gate.take(n),
            Self::Rw(gate) => gate.take(n),
        }
    }

    /// Puts the running transaction into a state, and has the rest of the journal told by `tell`
    /// before anyone can join. Only the commit.
    pub(super) fn set(&self, state: State, tid: Tid, tell: impl FnOnce()) {
        match self {
            Self::State(gate) => gate.set(Running { state, tid }, tell),
            Self::Rw(gate) => gate.set(Running { state, tid }, tell),
        }
    }

    /// Whether anyone is inside. Only the commit, gate closed.
    pub(super) fn is_entered(&self) -> bool {
        match self {
            Self::State(gate) => gate.is_entered(),
            Self::Rw(gate) => gate.is_entered(),
        }
    }

    /// Shuts everyone out and calls `tell`, as [`set`](Self::set) does, if nobody is inside; false
    /// if someone is. Only the commit, gate closed.
    pub(super) fn switch(&self, tid: Tid, tell: impl FnOnce()) -> bool {
        match self {
            Self::State(gate) => gate.switch(tid, tell),
            Self::Rw(gate) => gate.switch(tid, tell),
        }
    }

    /// Credits of a new transaction, `reserved` of them set aside. Only the commit, gate closed.
    pub(super) fn reset(&self, reserved: i64) {
        match self {
            Self::State(gate) => gate.reset(reserved),
            Self::Rw(gate) => gate.reset(reserved),
        }
    }

    /// Looks at the journal's flags, as jbd2 does before each use of a block; false if it is
    /// aborted, which the journal itself says sooner.
    pub(super) fn look(&self) -> bool {
        match self {
            Self::State(_) => true,
            Self::Rw(gate) => gate.look(),
        }
    }

    /// Credits that may still be taken.
    pub(super) fn left(&self) -> i64 {
        match self {
            Self::State(gate) => gate.left(),
            Self::Rw(gate) => gate.left(),
        }
    }
}
