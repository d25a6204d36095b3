//! What a sentry sees of a thread: how many requests it has answered, whether it would run, how
//! long it has.

use nextent_fuse_sys::{Class, ThreadNo};
use nextent_sync::atomic::{AtomicU64, Ordering};
use nextent_sync::{CachePadded, Duration, LockClass, Mutex};
use rustix::thread::CpuSet;

/// Held while a thread's class or cores are set, so that the thread does not end meanwhile.
static SEAT: LockClass = LockClass::new("fuse.seat", 2);

/// A thread's place at its core.
pub(super) struct Seat {
    /// Stored by the thread only, loaded by the sentry; nothing is ordered by it.
    served: CachePadded<AtomicU64>,
    /// The thread, while it serves. \[fuse.seat\]
    thread: Mutex<Option<ThreadNo>>,
}

impl Seat {
    pub(super) fn new() -> Self {
        let thread = Mutex::new(&SEAT, None);
        Self { served: CachePadded::new(AtomicU64::new(0)), thread }
    }

    /// The calling thread serves from here on, or no longer.
    pub(super) fn take(&self, serves: bool) {
        *self.thread.lock() = serves.then(ThreadNo::of_caller);
    }

    pub(super) fn note(&self, served: u64) {
        self.served.store(served, Ordering::Relaxed);
    }

    pub(super) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// Puts the thread into a class, if there is one.
    pub(super) fn set_class(&self, class: Class) {
        if let Some(thread) = *self.thread.lock() {
            // Tried before anything was built on it.
            let _ = thread.set_class(class);
        }
    }

    /// Has the thread run on `cores`, if there is one.
    pub(super) fn keep_on(&self, cores: &CpuSet) {
        if let Some(thread) = *self.thread.lock() {
            // Where the kernel refuses, it stays where it may be.
            let _ = thread.run_on(cores);
        }
    }

    /// Whether the thread would run, or does, and how long it has. Nothing of one that is gone.
    pub(super) fn state(&self) -> (bool, Duration) {
        let thread = *self.thread.lock();
        let Some(thread) = thread else { return (false, Duration::ZERO) };
        let read = |what| std::fs::read_to_string(format!("/proc/self/task/{thread}/{what}"));
        // What cannot be seen is taken for starved.
        let runs = read("stat").map_or(true, |line| is_runnable(&line));
        let ran = read("schedstat").map_or(Duration::ZERO, |line| ran(&line));
        (runs, ran)
    }
}

/// Whether a line of `stat` is that of a thread that runs or could.
fn is_runnable(line: &str) -> bool {
    // The name before may have anything in it.
    line.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('R'))
}

/// The core on which a thread of the machine runs, or last did; none of one that is gone or not to
/// be seen. This may wait for what the thread waits for: no thread that answers may ask.
pub(super) fn core_of(thread: u32) -> Option<usize> {
    core(&std::fs::read_to_string(format!("/proc/{thread}/stat")).ok()?)
}

/// The same, from a line of `stat`: its 39th field.
fn core(line: &str) -> Option<usize> {
    let (_, rest) = line.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(36)?.parse().ok()
}

/// The time a thread ran, from its `schedstat`; nothing where the kernel does not count.
fn ran(line: &str) -> Duration {
    let first = line.split(' ').next().and_then(|number| number.parse().ok());
    first.map_or(Duration::ZERO, Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        assert!(is_runnable("71 (next) S ent) R 1 2 3"));
        assert!(!is_runnable("71 (nextent) R) S 1 2 3") && !is_runnable("71 (nextent) D 1"));
        assert!(is_runnable(""));
        assert_eq!(ran("1908443 12 3\n"), Duration::from_nanos(1_908_443));
        assert_eq!(ran("x"), Duration::ZERO);
        let fields: Vec<_> = (3..50).map(|n| n.to_string()).collect();
        assert_eq!(core(&format!("7 (a) b) {}", fields.join(" "))), Some(39));
        assert_eq!(core("7 (a) S 1"), None);
    }

    #[test]
    fn a_thread_that_asks_runs() {
        let seat = Seat::new();
        assert_eq!(seat.state(), (false, Duration::ZERO));
        seat.take(true);
        seat.note(5);
        assert!(seat.state().0 && seat.served() == 5);
        seat.take(false);
        assert_eq!(seat.state(), (false, Duration::ZERO));
    }
}
