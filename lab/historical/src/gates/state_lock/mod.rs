//! jbd2 of 2.6.33: one lock guards the state, and another under it the transaction's counts.

mod start;
mod stop;

use super::{J_STATE, Running, T_HANDLE};
use nextent_ondisk::Tid;
use nextent_store::{Access, Admission, Joined, Joiner};
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{CachePadded, KindMutex, LockKind};

/// The gate: `j_state_lock` of the journal, and under it `t_handle_lock` of the transaction.
/// Journal and transaction are separate objects, so the locks are on separate cache lines.
pub(super) struct StateLockGate {
    journal: CachePadded<JournalState>,
    handles: CachePadded<KindMutex<HandleCounts>>,
    /// Whether a handle stops without the outer lock.
    may_stop_unlocked: bool,
    /// Credits of a transaction.
    capacity: i64,
}

/// The journal's part.
struct JournalState {
    running: KindMutex<Running>,
    /// Whether a commit waits for the last handle to leave. Relaxed: the committer stores it under
    /// `[historical.j-state]`, and handles load it under that lock, except in an unlocked stop.
    closed: AtomicBool,
}

/// Counts of the running transaction. `[historical.t-handle]`
#[derive(Debug, Default)]
struct HandleCounts {
    /// Credits of handles and of reservations.
    outstanding: i64,
    /// Handles inside.
    updates: u32,
    /// All handles since the transaction began, for statistics.
    count: u64,
}

impl StateLockGate {
    pub(super) fn new(kind: LockKind, may_stop_unlocked: bool, tid: Tid, capacity: i64) -> Self {
        let running = KindMutex::of_kind(kind, &J_STATE, Running::open(tid));
        let handles = KindMutex::of_kind(kind, &T_HANDLE, HandleCounts::default());
        Self {
            journal: CachePadded::new(JournalState { running, closed: AtomicBool::new(false) }),
            handles: CachePadded::new(handles),
            may_stop_unlocked,
            capacity,
        }
    }
}

impl Admission for StateLockGate {
    fn start(&self, credits: i64, joiner: Joiner) -> Joined {
        self.start_handle(credits, joiner)
    }

    fn stop(&self, unused: i64) -> bool {
        self.stop_handle(unused)
    }

    fn take(&self, n: i64) -> bool {
        self.take_credits(n)
    }

    fn left(&self) -> i64 {
        self.capacity - self.handles.lock().outstanding
    }

    fn set(&self, access: Access, tid: Tid, publish: &dyn Fn()) {
        let mut running = self.journal.running.lock();
        *running = Running { access, tid };
        self.journal.closed.store(access != Access::Open, Ordering::Relaxed);
        publish();
    }

    fn is_entered(&self) -> bool {
        self.handles.lock().updates != 0
    }

    fn switch(&self, tid: Tid, publish: &dyn Fn()) -> bool {
        let mut running = self.journal.running.lock();
        let handles = self.handles.lock();
        if handles.updates == 0 {
            *running = Running { access: Access::Shut, tid };
            publish();
        }
        handles.updates == 0
    }

    fn reset(&self, reserved: i64) {
        *self.handles.lock() = HandleCounts { outstanding: reserved, ..HandleCounts::default() };
    }
}
