//! A back end outside of this crate: the list of its names.
//!
//! The crate is named `backend` in the manifest that compiles these sources with the feature
//! `external-backend`. It says what an operation costs, so this is the only back end that listens
//! to call sites and declared accesses.

use crate::LockKind;
use crate::rank::Site;
use std::time::Duration;

#[cfg(debug_assertions)]
pub(crate) use backend::simulated_thread_local as thread_local;
pub(crate) use backend::{
    BiasedMutex, BiasedMutexGuard, BiasedRwLock, BiasedRwLockReadGuard, BiasedRwLockWriteGuard,
    Condvar, KindMutex, KindMutexGuard, KindRwLock, KindRwLockReadGuard, KindRwLockWriteGuard,
    Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, SLOTS, access_bytes, at_once,
    declare_instructions, interrupt_all as asymmetric_slow, on_workers, slot_of_caller, slots_used,
    wait_for_last_access,
};

// Named by the crate's public API.
pub use super::once::OnceLock;
pub use super::virtual_time::Instant;
pub use backend::{atomic, thread};

/// The wall clock when a run starts, in seconds since 1970.
const START: u64 = 1_700_000_000;
/// A tick of the coarse clock, in nanoseconds.
const TICK: u32 = 4_000_000;

/// Whether operations and declarations cost anything.
pub(crate) const CHARGES: bool = true;

/// Tables hash the same in each run. The order in which a table frees its values decides where
/// later memory lies, and so which data shares a cache line.
pub(crate) type HashKeys = std::hash::BuildHasherDefault<std::collections::hash_map::DefaultHasher>;

/// Hints to a simulated processor.
pub mod hint {
    pub use backend::spin_loop;
    pub use std::hint::black_box;
}

#[cfg(feature = "mutants")]
pub(crate) use backend::is_injected;

/// The lock and the call site of an operation.
#[derive(Clone, Copy)]
pub(crate) struct Operation(&'static str, Site);

impl Operation {
    pub(crate) fn new(class: &'static crate::LockClass, site: Site) -> Self {
        Self(class.name, site)
    }

    /// The caller's next access belongs to this operation.
    pub(crate) fn begin(self) {
        backend::at(Some(self.0), self.1);
    }
}

pub(crate) const fn kind_mutex<T>(kind: LockKind, value: T) -> KindMutex<T> {
    backend::kind_mutex(matches!(kind, LockKind::Spin), value)
}

pub(crate) const fn kind_rwlock<T>(kind: LockKind, value: T) -> KindRwLock<T> {
    backend::kind_rwlock(matches!(kind, LockKind::Spin), value)
}

pub(crate) fn asymmetric_fast() {}

pub(crate) fn slot_and_owner() -> (u16, bool) {
    let slot = slot_of_caller();
    (slot, usize::from(slot) < SLOTS - 1)
}

/// The virtual clock.
pub(super) fn clock() -> Duration {
    backend::virtual_time()
}

pub(crate) fn unix_time() -> Duration {
    Duration::from_secs(START) + clock()
}

pub(crate) fn coarse_unix_time() -> Duration {
    let now = unix_time();
    Duration::new(now.as_secs(), now.subsec_nanos() / TICK * TICK)
}

pub(crate) fn available_cores() -> usize {
    backend::cores()
}

/// Runs must not depend on the machine's memory.
pub(crate) fn available_memory() -> Option<u64> {
    None
}

pub(crate) fn release_memory() {}

pub(crate) fn memory_pressure() -> Option<std::fs::File> {
    None
}
