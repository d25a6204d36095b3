//! jbd2 of 2.6.36: the state under a lock for readers and writers, the counts atomics.
//!
//! Who joins reads the state under the lock, and counts itself in before it lets go: so who closes
//! the gate, under the lock for writing, finds everyone counted who saw it open. Who leaves takes
//! no lock. That the commit waits is a bit of the count of those inside, so that of the last to
//! leave and the commit at least one sees what the other has done to that one word.
//!
//! Starting and stopping are in files of their own, for statistics that name places.

mod start;
mod stop;

use super::super::gate::State;
use super::Running;
use crate::locks;
use nextent_ondisk::Tid;
use nextent_sync::atomic::{AtomicI64, AtomicU32, Ordering};
use nextent_sync::{CachePadded, KindRwLock, LockKind};

/// In the count of handles inside: a commit waits for it to be zero.
const AWAITED: u32 = 1 << 31;

/// The gate: `j_state_lock` in the journal, and the counts in the transaction, on one line.
pub(in crate::journal) struct RwGate {
    head: Box<Head>,
    counts: CachePadded<Counts>,
    /// Credits of a transaction.
    capacity: i64,
}

/// The first 128 bytes of the journal, as they were: what is looked at before each use of a block
/// lies in front of the lock, on its line where lines are that long.
#[repr(C, align(128))]
struct Head {
    /// Whether the journal is aborted, which is told elsewhere. Relaxed.
    flags: AtomicU32,
    between: [u64; 7],
    journal: KindRwLock<Running>,
}

/// What a transaction counts.
#[derive(Default)]
struct Counts {
    /// Credits held and set aside. Relaxed: an amount; `updates` hands over what handles did.
    outstanding: AtomicI64,
    /// Handles inside, and `AWAITED`. Release by who leaves, Acquire by the commit.
    updates: AtomicU32,
    /// Handles that there were, for statistics. Relaxed.
    count: AtomicU32,
}

impl RwGate {
    pub(super) fn new(kind: LockKind, tid: Tid, capacity: i64) -> Self {
        let running = Running { state: State::Running, tid };
        Self {
            head: Box::new(Head {
                flags: AtomicU32::new(0),
                between: [0; 7],
                journal: KindRwLock::of_kind(kind, &locks::MUSEUM_STATE_RW, running),
            }),
            counts: CachePadded::default(),
            capacity,
        }
    }

    /// Looks at the flags.
    pub(super) fn look(&self) -> bool {
        self.head.flags.load(Ordering::Relaxed) == 0 && self.head.between[0] == 0
    }

    pub(super) fn set(&self, running: Running, tell: impl FnOnce()) {
        let mut journal = self.head.journal.write();
        *journal = running;
        match running.state {
            State::Running => self.counts.updates.fetch_and(!AWAITED, Ordering::Relaxed),
            _ => self.counts.updates.fetch_or(AWAITED, Ordering::Relaxed),
        };
        tell();
    }

    pub(super) fn is_entered(&self) -> bool {
        self.counts.updates.load(Ordering::Acquire) & !AWAITED != 0
    }

    pub(super) fn switch(&self, tid: Tid, tell: impl FnOnce()) -> bool {
        let mut journal = self.head.journal.write();
        if self.is_entered() {
            return false;
        }
        *journal = Running { state: State::Switch, tid };
        tell();
        true
    }

    pub(super) fn reset(&self, reserved: i64) {
        self.counts.outstanding.store(reserved, Ordering::Relaxed);
        self.counts.count.store(0, Ordering::Relaxed);
    }

    pub(super) fn left(&self) -> i64 {
        self.capacity - self.counts.outstanding.load(Ordering::Relaxed)
    }
}
