//! jbd2 of 2.6.36: the state under a readers-writer lock, the counts atomics.
//!
//! A handle that joins reads the state under the lock, and counts itself in before it releases the
//! lock. So a committer that closes the gate, under the lock for writing, finds every handle
//! counted that saw it open. A handle that leaves takes no lock. `AWAITED`, set while a commit
//! waits, is a bit of the count of handles inside: of the last handle to leave and the committer,
//! at least one sees the other's change of that one word.

mod start;
mod stop;

use super::{J_STATE_RW, Running};
use nextent_ondisk::Tid;
use nextent_store::{Access, Admission, Joined, Joiner};
use nextent_sync::atomic::{AtomicI64, AtomicU32, Ordering};
use nextent_sync::{CachePadded, KindRwLock, LockKind};

/// In the count of handles inside: a commit waits for it to be zero.
const AWAITED: u32 = 1 << 31;

/// The gate: `j_state_lock` in the journal, and the counts in the transaction, on one line.
pub(super) struct RwLockGate {
    head: Box<JournalHead>,
    counts: CachePadded<TransactionCounts>,
    /// Credits of a transaction.
    capacity: i64,
}

/// The first 128 bytes of the journal, as they were: the flags, read before each use of a block,
/// lie in front of the lock. They share its line where lines are that long.
#[repr(C, align(128))]
struct JournalHead {
    /// An aborted journal has a flag set; here the store records that elsewhere. Relaxed.
    flags: AtomicU32,
    between: [u64; 7],
    running: KindRwLock<Running>,
}

/// The counts of a transaction.
#[derive(Default)]
struct TransactionCounts {
    /// Credits held and set aside. Relaxed: an amount; `updates` hands over what handles did.
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

    /// Loads the flags, as jbd2 does; the store itself notices an abort sooner.
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
