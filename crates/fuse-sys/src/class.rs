//! The scheduling class of a thread: normal or idle.
//!
//! Linux treats a core that runs only idle-class threads as an idle core. A task that such a thread
//! wakes on its core therefore stays on that core.

#![allow(unsafe_code)]

use std::io;

use rustix::thread::{CpuSet, Pid, gettid, sched_setaffinity};

/// The scheduling class of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The default class, `SCHED_OTHER`.
    Usual,
    /// Runs only when no normal thread wants the core: `SCHED_IDLE`.
    Idle,
}

/// The kernel's number (tid) of a thread of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadNo(Pid);

/// The argument of `sched_setscheduler`. Both classes require priority 0.
#[repr(C)]
struct Parameter {
    priority: libc::c_int,
}

impl ThreadNo {
    #[must_use]
    /// The calling thread.
    pub fn of_caller() -> Self {
        Self(gettid())
    }

    /// Sets the thread's scheduling class. The thread must be alive: the kernel may reuse its
    /// number afterwards.
    ///
    /// # Errors
    ///
    /// The kernel's error. Returning to [`Class::Usual`] needs root or the right to set the nice
    /// value of the process.
    pub fn set_class(self, class: Class) -> io::Result<()> {
        let class = match class {
            Class::Usual => libc::SCHED_OTHER,
            Class::Idle => libc::SCHED_IDLE,
        };
        let parameter = Parameter { priority: 0 };
        let (number, parameter) = (self.0.as_raw_nonzero().get(), &raw const parameter);
        // A direct system call, because musl's `sched_setscheduler` does nothing.
        // SAFETY: the kernel only reads the parameter, which lives until the call returns.
        let done = unsafe { libc::syscall(libc::SYS_sched_setscheduler, number, class, parameter) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Restricts the thread to `cores`. It must be alive, as for [`Self::set_class`].
    ///
    /// # Errors
    ///
    /// The kernel's error, for example if the process may use none of `cores`.
    pub fn run_on(self, cores: &CpuSet) -> io::Result<()> {
        Ok(sched_setaffinity(Some(self.0), cores)?)
    }

    /// The thread's class, or `None` for another class or an error.
    #[must_use]
    pub fn class(self) -> Option<Class> {
        let number = self.0.as_raw_nonzero().get();
        // SAFETY: the call passes no memory.
        let class = unsafe { libc::syscall(libc::SYS_sched_getscheduler, number) };
        match i32::try_from(class) {
            Ok(libc::SCHED_OTHER) => Some(Class::Usual),
            Ok(libc::SCHED_IDLE) => Some(Class::Idle),
            _ => None,
        }
    }
}

/// Voluntary context switches of the calling thread: how often it gave up its core to wait. 0 if
/// the kernel does not say.
#[must_use]
pub fn sleeps_of_caller() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the kernel fills the whole structure when it returns 0.
    let usage = unsafe {
        match libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) {
            0 => usage.assume_init(),
            _ => return 0,
        }
    };
    usage.ru_nvcsw.unsigned_abs()
}

impl std::fmt::Display for ThreadNo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.as_raw_nonzero().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_always_enter_the_idle_class() {
        // The test harness gives each test its own thread, so its class does not matter later.
        let me = ThreadNo::of_caller();
        if me.class() != Some(Class::Usual) {
            return;
        }
        me.set_class(Class::Idle).expect("no right is needed");
        assert_eq!(me.class(), Some(Class::Idle));
        if me.set_class(Class::Usual).is_ok() {
            assert_eq!(me.class(), Some(Class::Usual));
        }
    }

    #[test]
    fn a_sleeping_thread_counts_a_switch() {
        let before = sleeps_of_caller();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(sleeps_of_caller() > before);
    }
}
