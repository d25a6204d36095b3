//! Waiting for a condition under a mutex.

use crate::MutexGuard;
use crate::primitive::{self, constant};
use std::fmt;
use std::panic::Location;
use std::time::Duration;

/// Waits for a condition under a [`Mutex`](crate::Mutex).
///
/// A wait takes the mutex again before it returns, so the caller may hold only locks of lower rank
/// than the mutex: debug and model builds check it when the wait begins.
#[derive(Default)]
pub struct Condvar {
    inner: primitive::Condvar,
}

impl Condvar {
    constant! {
        /// A new condition with no waiters.
        pub const fn new() -> Self {
            Self { inner: primitive::Condvar::new() }
        }
    }

    /// Releases the lock, waits for a notification, takes the lock again. It may also return
    /// without a notification, so the caller checks its condition again.
    ///
    /// # Panics
    /// In debug and model builds, if the caller holds anything else of the
    /// mutex's rank or above.
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.held.suspend();
        guard.hold.suspend();
        self.inner.wait(&mut guard.inner);
        guard.hold.resume(Location::caller());
        guard.held.resume();
    }

    /// As [`wait`](Self::wait), at most `timeout`; true if it timed out.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    #[track_caller]
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        guard.held.suspend();
        guard.hold.suspend();
        let timed_out = self.inner.wait_for(&mut guard.inner, timeout);
        guard.hold.resume(Location::caller());
        guard.held.resume();
        timed_out
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.inner.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.inner.notify_all();
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}
