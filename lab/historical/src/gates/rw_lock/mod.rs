//! jbd2 of 2.6.36: a reader-writer lock guards the state, and the counts are atomics.
//!
//! A joining handle reads the state under the lock and increments the count before it releases the
//! lock. The committer closes the gate under the write lock. So the count includes every handle
//! that saw the gate open. A leaving handle takes no lock. `AWAITED` is a bit of the same word as
//! the count, and is set while a commit waits. So the last handle or the committer sees the other's
//! change.

mod start;
mod stop;

use super::{J_STATE_RW, Running};
use nextent_ondisk::Tid;
use nextent_store::{Access, Admission, Joined, Joiner};
use nextent_sync::atomic::{AtomicI64, AtomicU32, Ordering};
use nextent_sync::{CachePadded, KindRwLock, LockKind};

/// A bit in the count of handles: a commit waits until the count is zero.
const AWAITED: u32 = 1 << 31;

/// The gate: `j_state_lock` in the journal, and the transaction's counts on one cache line.
pub(super) struct RwLockGate {
    head: Box<JournalHead>,
    counts: CachePadded<TransactionCounts>,
    /// Credits of a transaction.
    capacity: i64,
}

/// The first 128 bytes of the journal, with the original layout. The flags, which each use of a
/// block reads, precede the lock and share its cache line if lines are that long.
#[repr(C, align(128))]
struct JournalHead {
    /// In jbd2 a flag marks an aborted journal; here it is never set. Relaxed.
    flags: AtomicU32,
    between: [u64; 7],
    running: KindRwLock<Running>,
}

/// The counts of a transaction.
#[derive(Default)]
struct TransactionCounts {
    /// Credits of handles and of reservations. Relaxed: `updates` orders the changes of handles.
    outstanding: AtomicI64,
    /// Handles inside, and `AWAITED`. Release by a handle that leaves, Acquire by the committer.
    updates: AtomicU32,
    /// All handles since the transaction began, for statistics. Relaxed.
    count: AtomicU32,
}

impl RwLockGate {
    pub(super) fn new(kind: LockKind, tid: Tid, capacity: i64) -> Self {
        Self {
            head: Box::new(JournalHead {
                flags: AtomicU32::new(0),
                between: [0; 7],
                running: KindRwLock::of_kind(kind, &J_STATE_RW, Running::open(tid)),
            }),
            counts: CachePadded::default(),
            capacity,
        }
    }
}

impl Admission for RwLockGate {
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
        self.capacity - self.counts.outstanding.load(Ordering::Relaxed)
    }

    /// Loads the flags, as jbd2 does. The store detects an abort before that.
    fn before_use(&self) {
        let is_aborted = self.head.flags.load(Ordering::Relaxed) != 0 || self.head.between[0] != 0;
        debug_assert!(!is_aborted, "the flags are never set here");
    }

    fn set(&self, access: Access, tid: Tid, publish: &dyn Fn()) {
        let mut running = self.head.running.write();
        *running = Running { access, tid };
        match access {
            Access::Open => self.counts.updates.fetch_and(!AWAITED, Ordering::Relaxed),
            _ => self.counts.updates.fetch_or(AWAITED, Ordering::Relaxed),
        };
        publish();
    }

    fn is_entered(&self) -> bool {
        self.counts.updates.load(Ordering::Acquire) & !AWAITED != 0
    }

    fn switch(&self, tid: Tid, publish: &dyn Fn()) -> bool {
        let mut running = self.head.running.write();
        if self.is_entered() {
            return false;
        }
        *running = Running { access: Access::Shut, tid };
        publish();
        true
    }

    fn reset(&self, reserved: i64) {
        self.counts.outstanding.store(reserved, Ordering::Relaxed);
        self.counts.count.store(0, Ordering::Relaxed);
    }
}
