//! The real back end: parking_lot's locks and the standard library.

mod biased;
mod kind;
mod membarrier;
mod memory;
mod slots;

#[cfg(target_os = "linux")]
use nextent_num::must_fit;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) use super::uncharged::*;
pub(crate) use biased::{
    BiasedMutex, BiasedMutexGuard, BiasedRwLock, BiasedRwLockReadGuard, BiasedRwLockWriteGuard,
};
pub(crate) use kind::{
    KindMutex, KindMutexGuard, KindRwLock, KindRwLockReadGuard, KindRwLockWriteGuard, kind_mutex,
    kind_rwlock,
};
pub(crate) use membarrier::{asymmetric_fast, asymmetric_slow};
pub(crate) use memory::{available_memory, memory_pressure, release_memory};
pub(crate) use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub(crate) use slots::{SLOTS, slot_and_owner, slot_of_caller, slots_used};
#[cfg(debug_assertions)]
pub(crate) use std::thread_local;

// Named by the crate's public API.
pub use std::sync::OnceLock;
// Wrapped, not exported, where stores are counted.
#[cfg_attr(feature = "lockstat", allow(unreachable_pub))]
pub use std::sync::atomic;
pub use std::time::Instant;
pub use std::{hint, thread};

/// A condition whose wait returns whether it timed out.
#[derive(Default)]
pub(crate) struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    pub(crate) fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(guard);
    }

    pub(crate) fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Duration,
    ) -> bool {
        self.0.wait_for(guard, timeout).timed_out()
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// The number of threads that can run at once.
pub(crate) fn available_cores() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Time since 1970; a clock set before that reads as 1970.
pub(crate) fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// [`unix_time`] as of the last tick.
#[cfg(target_os = "linux")]
pub(crate) fn coarse_unix_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in the struct it is given, which lives longer than the call.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut time) };
    match u64::try_from(time.tv_sec) {
        Ok(seconds) if done == 0 => Duration::new(seconds, must_fit(time.tv_nsec)),
        _ => unix_time(),
    }
}

/// [`unix_time`] as of the last tick.
#[cfg(not(target_os = "linux"))]
pub(crate) fn coarse_unix_time() -> Duration {
    unix_time()
}

/// Runs `work` on the caller and on `others` new threads until all are done.
pub(crate) fn on_workers(others: usize, work: impl Fn() + Sync) {
    thread::scope(|scope| {
        for _ in 0..others {
            // Without another thread the caller does all the work.
            if thread::Builder::new().spawn_scoped(scope, &work).is_err() {
                break;
            }
        }
        work();
    });
}
