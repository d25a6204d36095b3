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
    let work_as_usual = || {
        leave_callers_class();
        work();
    };
    thread::scope(|scope| {
        for _ in 0..others {
            // Without another thread the caller does all the work.
            if thread::Builder::new().spawn_scoped(scope, work_as_usual).is_err() {
                break;
            }
        }
        work();
    });
}

/// Leaves the scheduling class of the caller of `on_workers` if that is SCHED_IDLE, but the
/// process's is not. A watchdog then cares for the caller, but not for this new thread.
#[cfg(target_os = "linux")]
fn leave_callers_class() {
    // By system calls: musl's functions of these names do nothing.
    // SAFETY: numbers only, and a parameter that lives until the call returns.
    unsafe {
        let class = |thread: libc::pid_t| libc::syscall(libc::SYS_sched_getscheduler, thread);
        let (idle, usual) = (libc::SCHED_IDLE, libc::SCHED_OTHER);
        if class(0) == libc::c_long::from(idle)
            && class(libc::getpid()) == libc::c_long::from(usual)
        {
            let priority: libc::c_int = 0;
            libc::syscall(libc::SYS_sched_setscheduler, 0, usual, &raw const priority);
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn leave_callers_class() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// The calling thread's number and scheduling class.
    fn class() -> (libc::c_long, libc::c_long) {
        // SAFETY: numbers only.
        unsafe {
            let number = libc::syscall(libc::SYS_gettid);
            (number, libc::syscall(libc::SYS_sched_getscheduler, 0))
        }
    }

    #[test]
    fn workers_leave_the_class_of_one_thread() {
        // SAFETY: a number.
        let is_root = unsafe { libc::geteuid() } == 0;
        if !is_root || class().1 != libc::c_long::from(libc::SCHED_OTHER) {
            return;
        }
        let caller = thread::spawn(|| {
            let priority: libc::c_int = 0;
            let (call, class_wanted) = (libc::SYS_sched_setscheduler, libc::SCHED_IDLE);
            // SAFETY: the parameter lives until the call returns.
            let done = unsafe { libc::syscall(call, 0, class_wanted, &raw const priority) };
            assert_eq!(done, 0);
            let seen = Mutex::new(HashSet::new());
            on_workers(3, || {
                seen.lock().insert(class());
            });
            (class(), seen.into_inner())
        });
        let (me, seen) = caller.join().expect("no panic");
        assert_eq!((me.1, seen.len()), (libc::c_long::from(libc::SCHED_IDLE), 4));
        let usual = libc::c_long::from(libc::SCHED_OTHER);
        assert!(seen.iter().all(|thread| *thread == me || thread.1 == usual), "{me:?} {seen:?}");
    }
}
