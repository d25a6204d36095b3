//! The model-checked back ends: shuttle, or loom for memory order.
//!
//! Differences from the real back end:
//! - A test has one or more executions. Slots, the clock and all objects belong to one of them, and
//!   there are few slots.
//! - The clock advances only when a thread reads it, sleeps or times out.
//! - A wait with a time limit times out at once, after other threads had a turn.
//! - `Arc` is the standard one, so its counts are no scheduling points.
//! - Loom's constructors are not `const`, and its atomics have no `get_mut`. It has no scoped
//!   threads, so the caller does the workers' work. It gives no slot to a second thread.

mod lock;
mod slots;
mod time;

#[cfg(feature = "model-loom")]
pub(crate) use loom as base;
#[cfg(all(feature = "model-shuttle", not(feature = "model-loom")))]
pub(crate) use shuttle as base;

pub(crate) use base::thread_local;
pub(crate) use lock::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
// A model has no costs, so a biased lock is a lock.
pub(crate) use lock::{
    Mutex as BiasedMutex, MutexGuard as BiasedMutexGuard, RwLock as BiasedRwLock,
    RwLockReadGuard as BiasedRwLockReadGuard, RwLockWriteGuard as BiasedRwLockWriteGuard,
};
// A model does not distinguish how a thread waits.
pub(crate) use super::uncharged::*;
pub(crate) use lock::{
    Mutex as KindMutex, MutexGuard as KindMutexGuard, RwLock as KindRwLock,
    RwLockReadGuard as KindRwLockReadGuard, RwLockWriteGuard as KindRwLockWriteGuard, kind_mutex,
    kind_rwlock,
};
pub(crate) use slots::{SLOTS, slot_and_owner, slot_of_caller, slots_used};
pub(super) use time::clock;
pub(crate) use time::{coarse_unix_time, unix_time};

// Named by the crate's public API.
pub use super::once::OnceLock;
pub use super::virtual_time::Instant;
pub use base::hint;

/// The model's atomics.
#[cfg_attr(feature = "lockstat", allow(unreachable_pub))]
pub mod atomic {
    pub use super::base::sync::atomic::*;
    pub use std::sync::atomic::compiler_fence;
}

/// The model's threads.
pub mod thread {
    pub use super::base::thread::*;
    pub use super::time::sleep;

    /// As many cores as [`available_cores`](super::available_cores) says.
    ///
    /// # Errors
    /// Never.
    pub fn available_parallelism() -> std::io::Result<std::num::NonZeroUsize> {
        let cores = std::num::NonZeroUsize::new(super::available_cores());
        cores.ok_or(std::io::ErrorKind::Unsupported.into())
    }
}

/// Both sides of a model's asymmetric barrier are full fences.
pub(crate) fn asymmetric_fast() {
    atomic::fence(atomic::Ordering::SeqCst);
}

/// Both sides of a model's asymmetric barrier are full fences.
pub(crate) fn asymmetric_slow() {
    atomic::fence(atomic::Ordering::SeqCst);
}

/// Two, so that models run code that depends on the number.
pub(crate) fn available_cores() -> usize {
    2
}

/// Runs must not depend on the machine's memory.
pub(crate) fn available_memory() -> Option<u64> {
    None
}

pub(crate) fn release_memory() {}

pub(crate) fn memory_pressure() -> Option<std::fs::File> {
    None
}

/// Runs `work` on the caller and on `others` new threads until all are done.
#[cfg(not(feature = "model-loom"))]
pub(crate) fn on_workers(others: usize, work: impl Fn() + Sync) {
    thread::scope(|scope| {
        for _ in 0..others {
            scope.spawn(&work);
        }
        work();
    });
}

/// Runs `work` on the caller.
#[cfg(feature = "model-loom")]
pub(crate) fn on_workers(_others: usize, work: impl Fn() + Sync) {
    work();
}
