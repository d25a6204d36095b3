//! jbd2 of 2.6.33: the state under one lock, the transaction's counts under another inside it.
//!
//! Starting and stopping are in files of their own, so that statistics of locks, which name the
//! place where a holder took its lock, say whether it was starting or stopping.

mod start;
mod stop;

use super::super::gate::State;
use super::Running;
use crate::locks;
use nextent_ondisk::Tid;
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{CachePadded, KindMutex, LockKind};

/// The gate: `j_state_lock` in the journal, and in it `t_handle_lock` in the transaction, which are
/// objects of their own and so on lines of their own.
pub(in crate::journal) struct StateGate {
    journal: CachePadded<Outer>,
    handles: CachePadded<KindMutex<Handles>>,
    /// Stop without the outer lock.
    hacked: bool,
    /// Credits of a transaction.
    capacity: i64,
}

/// The journal's part.
struct Outer {
    state: KindMutex<Running>,
    /// Whether a commit waits for the last to leave. Written under `[museum.j-state]`, by whoever
    /// opens or closes; read under it, but by the hack. Relaxed.
    closed: AtomicBool,
}

/// Counts of the running transaction. `[museum.t-handle]`
#[derive(Debug, Default)]
struct Handles {
    /// Credits held and set aside.
    outstanding: i64,
    /// Handles inside.
    updates: u32,
    /// Handles that there were, for statistics.
    count: u64,
}

impl StateGate {
    pub(super) fn new(kind: LockKind, hacked: bool, tid: Tid, capacity: i64) -> Self {
        let running = Running { state: State::Running, tid };
        let state = KindMutex::of_kind(kind, &locks::MUSEUM_STATE, running);
        let handles = KindMutex::of_kind(kind, &locks::MUSEUM_HANDLES, Handles::default());
        Self {
            journal: CachePadded::new(Outer { state, closed: AtomicBool::new(false) }),
            handles: CachePadded::new(handles),
            hacked,
            capacity,
        }
    }

    pub(super) fn set(&self, running: Running, tell: impl FnOnce()) {
        let mut journal = self.journal.state.lock();
        *journal = running;
        self.journal.closed.store(running.state != State::Running, Ordering::Relaxed);
        tell();
    }

    pub(super) fn is_entered(&self) -> bool {
        self.handles.lock().updates != 0
    }

    pub(super) fn switch(&self, tid: Tid, tell: impl FnOnce()) -> bool {
        let mut journal = self.journal.state.lock();
        let handles = self.handles.lock();
        if handles.updates == 0 {
            *journal = Running { state: State::Switch, tid };
            tell();
        }
        handles.updates == 0
    }

    pub(super) fn reset(&self, reserved: i64) {
        *self.handles.lock() = Handles { outstanding: reserved, ..Handles::default() };
    }

    pub(super) fn left(&self) -> i64 {
        self.capacity - self.handles.lock().outstanding
    }
}
