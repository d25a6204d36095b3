//! How the scheduler ranks a thread: as usual, or below everybody else.
//!
//! Linux takes a core on which only threads of the lower class are for an idle one, so that whoever
//! such a thread wakes there stays there.

#![allow(unsafe_code)]

use std::io;

use rustix::thread::{CpuSet, Pid, gettid, sched_setaffinity};

/// The class of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Every thread's share: `SCHED_OTHER`.
    Usual,
    /// What others leave over: `SCHED_IDLE`.
    Idle,
}

/// A thread of this process, as the kernel numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadNo(Pid);

/// What `sched_setscheduler` takes beside the class: neither class has priorities.
#[repr(C)]
struct Parameter {
    priority: libc::c_int,
}

impl ThreadNo {
    /// The calling thread.
    #[must_use]
    pub fn of_caller() -> Self {
        Self(gettid())
    }

    /// Puts the thread into `class`. It must be alive: its number may be another's afterwards.
    ///
    /// # Errors
    /// Back to [`Class::Usual`]: who is neither root nor may set the process's own nice value.
    pub fn set_class(self, class: Class) -> io::Result<()> {
        let class = match class {
            Class::Usual => libc::SCHED_OTHER,
            Class::Idle => libc::SCHED_IDLE,
        };
        let parameter = Parameter { priority: 0 };
        let (number, parameter) = (self.0.as_raw_nonzero().get(), &raw const parameter);
        // By the call itself: musl's function of that name does nothing.
        // SAFETY: the kernel reads the parameter, which lives until the call returns.
        let done = unsafe { libc::syscall(libc::SYS_sched_setscheduler, number, class, parameter) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Has the thread run on `cores` only. It must be alive, as for [`Self::set_class`].
    ///
    /// # Errors
    /// None of these may be its.
    pub fn run_on(self, cores: &CpuSet) -> io::Result<()> {
        Ok(sched_setaffinity(Some(self.0), cores)?)
    }

    /// The thread's class; none if it has another one.
    #[must_use]
    pub fn class(self) -> Option<Class> {
        let number = self.0.as_raw_nonzero().get();
        // SAFETY: numbers only.
        let class = unsafe { libc::syscall(libc::SYS_sched_getscheduler, number) };
        match i32::try_from(class) {
            Ok(libc::SCHED_OTHER) => Some(Class::Usual),
            Ok(libc::SCHED_IDLE) => Some(Class::Idle),
            _ => None,
        }
    }
}

/// How often the calling thread has given its core up to wait for something.
#[must_use]
pub fn sleeps_of_caller() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the kernel fills all of it if it says so.
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
    fn a_thread_may_always_go_below() {
        // A thread of its own for each test, so nobody minds where it ends.
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
    fn who_waits_sleeps() {
        let before = sleeps_of_caller();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(sleeps_of_caller() > before);
    }
}
