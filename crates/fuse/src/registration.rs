//! The order in which ring threads hand their entries to the kernel and begin to answer.
//!
//! The kernel sends requests over io_uring as soon as each queue has an entry. A request that finds
//! no free entry is queued, and an entry takes queued requests only when it hands in a reply, not
//! when it is registered. So a request that is queued too early waits for one busy entry, however
//! long that is busy, while later entries of its queue are idle.
//!
//! 1. The threads of all queues but the last ones ([`Turn::First`]) register their entries.
//! 2. Then the threads of the last queues ([`Turn::Last`]) register theirs. The kernel begins to
//!    send requests meanwhile. All entries of the first queues are there.
//! 3. Threads answer once all threads have registered.
//!
//! A thread that fails, also by a panic, releases all others, and these must not answer. Its caller
//! aborts the mount.
//!
//! Lock rank: `fuse.registration` is held for a few instructions, and while waiting.

use std::io;

use nextent_sync::{Condvar, LockClass, Mutex};

/// Held to count a thread, and to wait for others.
static REGISTRATION: LockClass = LockClass::new("fuse.registration", 2);

/// When a thread registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// At once.
    First,
    /// After all threads with the first turn.
    Last,
}

struct State {
    /// Threads with each turn that have not registered.
    first: usize,
    last: usize,
    /// A thread has failed.
    failed: bool,
}

/// The registration of one mount's ring threads.
pub(crate) struct Registration {
    /// \[fuse.registration\]
    state: Mutex<State>,
    /// A count has become zero, or a thread has failed.
    changed: Condvar,
}

impl Registration {
    /// Expects `first` and `last` threads with these turns.
    pub(crate) fn new(first: usize, last: usize) -> Self {
        let state = Mutex::new(&REGISTRATION, State { first, last, failed: false });
        Self { state, changed: Condvar::new() }
    }

    /// Calls `register` when it is the thread's `turn`, and returns its result when all threads
    /// have registered; none if another thread has failed.
    ///
    /// # Errors
    /// That of `register`.
    pub(crate) fn run<T>(
        &self,
        turn: Turn,
        register: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        let fails = FailOnDrop(self);
        if !self.wait(|state| turn == Turn::First || state.first == 0) {
            return Ok(None);
        }
        let registered = register()?;
        std::mem::forget(fails);
        self.count(turn);
        Ok(self.wait(|state| state.first + state.last == 0).then_some(registered))
    }

    fn count(&self, turn: Turn) {
        let mut state = self.state.lock();
        match turn {
            Turn::First => state.first -= 1,
            Turn::Last => state.last -= 1,
        }
        if state.first == 0 {
            self.changed.notify_all();
        }
    }

    /// Waits until `reached`; false if a thread has failed.
    fn wait(&self, reached: impl Fn(&State) -> bool) -> bool {
        let mut state = self.state.lock();
        while !state.failed && !reached(&state) {
            self.changed.wait(&mut state);
        }
        !state.failed
    }
}

/// Reports a thread that did not register.
struct FailOnDrop<'a>(&'a Registration);

impl Drop for FailOnDrop<'_> {
    fn drop(&mut self) {
        self.0.state.lock().failed = true;
        self.0.changed.notify_all();
    }
}

/// What tests run on real threads, and models under a scheduler.
#[cfg(test)]
mod protocols {
    use super::*;
    use nextent_sync::{Arc, thread};

    /// Queues, of which the last is registered last, and entries of each.
    const QUEUES: usize = 3;
    const ENTRIES: usize = 2;

    static KERNEL: LockClass = LockClass::new("test.kernel", 3);

    /// The kernel's state of a connection: entries of each queue, free and in all, and whether it
    /// sends requests.
    #[derive(Default)]
    struct Kernel {
        free: [usize; QUEUES],
        registered: usize,
        sends: bool,
        answers: usize,
    }

    impl Kernel {
        fn register(&mut self, queue: usize) {
            self.free[queue] += 1;
            self.registered += 1;
            self.sends |= self.free.iter().all(|free| *free > 0);
        }

        /// Sends a request, unless it is too early; it must find a free entry.
        fn send(&mut self, queue: usize) {
            if self.sends {
                assert!(self.free[queue] > 0, "a request is queued beside entries to come");
                self.free[queue] -= 1;
            }
        }
    }

    /// Threads register, and clients send as many requests to each of the first queues as it has
    /// entries.
    pub(super) fn no_request_is_queued() {
        let registration = Arc::new(Registration::new((QUEUES - 1) * ENTRIES, ENTRIES));
        let kernel = Arc::new(Mutex::new(&KERNEL, Kernel::default()));
        let mut threads = Vec::new();
        for n in 0..QUEUES * ENTRIES {
            let (registration, kernel) = (Arc::clone(&registration), Arc::clone(&kernel));
            threads.push(thread::spawn(move || {
                let queue = n % QUEUES;
                let turn = if queue == QUEUES - 1 { Turn::Last } else { Turn::First };
                let registered = registration.run(turn, || {
                    kernel.lock().register(queue);
                    Ok(())
                });
                assert!(registered.is_ok_and(|all| all.is_some()));
                let mut kernel = kernel.lock();
                assert_eq!(kernel.registered, QUEUES * ENTRIES);
                kernel.answers += 1;
            }));
        }
        for n in 0..(QUEUES - 1) * ENTRIES {
            let kernel = Arc::clone(&kernel);
            threads.push(thread::spawn(move || kernel.lock().send(n % (QUEUES - 1))));
        }
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(kernel.lock().answers, QUEUES * ENTRIES);
    }

    /// The first of four threads fails: none answers, and all end.
    pub(super) fn a_failure_releases_all() {
        use Turn::{First, Last};
        for turns in [[First, First, Last, Last], [Last, First, First, Last]] {
            let registration = Arc::new(Registration::new(2, 2));
            let threads: Vec<_> = (0..4)
                .map(|n| {
                    let registration = Arc::clone(&registration);
                    thread::spawn(move || {
                        registration.run(turns[n], || match n {
                            0 => Err(io::Error::other("refused")),
                            _ => Ok(()),
                        })
                    })
                })
                .collect();
            let ended = threads.into_iter().map(|thread| thread.join().expect("no panic"));
            let ended: Vec<_> = ended.collect();
            assert!(ended[0].is_err());
            assert!(ended[1..].iter().all(|ended| matches!(ended, Ok(None))), "{turns:?}");
        }
    }
}

#[cfg(all(test, not(feature = "model-shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn no_request_is_queued_before_all_entries_are_there() {
        (0..100).for_each(|_| protocols::no_request_is_queued());
    }

    #[test]
    fn a_thread_that_fails_releases_all() {
        (0..100).for_each(|_| protocols::a_failure_releases_all());
    }

    #[test]
    fn a_panic_is_a_failure() {
        let registration = Registration::new(1, 1);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            registration.run(Turn::First, || -> io::Result<()> { panic!("here") })
        }));
        assert!(ended.is_err());
        assert!(matches!(registration.run(Turn::Last, || Ok(())), Ok(None)));
    }
}

#[cfg(all(test, feature = "model-shuttle"))]
mod models {
    use super::protocols;
    use nextent_sync::shuttle;

    #[test]
    fn no_request_is_queued_before_all_entries_are_there() {
        shuttle::check_random(protocols::no_request_is_queued, 2000);
    }

    #[test]
    fn a_thread_that_fails_releases_all() {
        shuttle::check_random(protocols::a_failure_releases_all, 1000);
    }
}
