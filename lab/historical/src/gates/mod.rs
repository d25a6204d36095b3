//! The admissions of jbd2: gates without per-thread slots.
//!
//! | admission | start | stop |
//! |---|---|---|
//! | `StateLock` | `[historical.j-state]`, under it `[historical.t-handle]` | the same |
//! | `StateLockHack` | the same | `[historical.t-handle]` |
//! | `RwLock` | `[historical.j-state-rw]` read; four read-modify-writes of one line | two of them |
//!
//! As in jbd2, these locks guard the state of the running transaction, the credits and the number
//! of its handles, and a count of all handles. The gates keep the invariants J1 to J3 of
//! [`nextent_store::Admission`].
//!
//! The start and the stop of a handle are in separate files, because lock statistics name the file
//! in which a holder took its lock.
//!
//! Lock ranks: `[historical.j-state]` and `[historical.j-state-rw]` 612, `[historical.t-handle]`
//! 614.

mod rw_lock;
mod state_lock;

use crate::design::Admission;
use nextent_ondisk::Tid;
use nextent_store::{Access, AdmissionFactory};
use nextent_sync::{LockClass, LockKind};
use rw_lock::RwLockGate;
use state_lock::StateLockGate;

/// jbd2 of 2.6.33, `j_state_lock`: the state of the running transaction.
static J_STATE: LockClass = LockClass::new("historical.j-state", 612);
/// jbd2 of 2.6.36, `j_state_lock`: the same, as a reader-writer lock.
static J_STATE_RW: LockClass = LockClass::new("historical.j-state-rw", 612);
/// jbd2 of 2.6.33, `t_handle_lock`: counts of the running transaction.
static T_HANDLE: LockClass = LockClass::new("historical.t-handle", 614);

/// The running transaction, and the handles that may join it.
#[derive(Clone, Copy, Debug)]
struct Running {
    access: Access,
    tid: Tid,
}

impl Running {
    const fn open(tid: Tid) -> Self {
        Self { access: Access::Open, tid }
    }
}

/// A factory of the gate `admission`, with locks of `kind`. For slots it is the default factory.
#[must_use]
pub fn factory(admission: Admission, kind: LockKind) -> AdmissionFactory {
    let state_lock = |may_stop_unlocked| {
        AdmissionFactory::new(move |tid, capacity| {
            Box::new(StateLockGate::new(kind, may_stop_unlocked, tid, capacity))
        })
    };
    match admission {
        Admission::Slots => AdmissionFactory::default(),
        Admission::StateLock => state_lock(false),
        Admission::StateLockHack => state_lock(true),
        Admission::RwLock => AdmissionFactory::new(move |tid, capacity| {
            Box::new(RwLockGate::new(kind, tid, capacity))
        }),
    }
}
