//! The watchdog's view of a thread: answered requests, whether it is runnable, its run time.

use nextent_fuse_sys::{Class, ThreadNo};
use nextent_sync::atomic::{AtomicU64, Ordering};
use nextent_sync::{CachePadded, Duration, LockClass, Mutex};
use rustix::thread::CpuSet;

/// Held while a thread's class or cores are set, so that the thread does not end meanwhile.
static WORKER: LockClass = LockClass::new("fuse.worker", 2);

/// The state of one thread that serves.
pub(super) struct WorkerState {
    /// Stored by the thread only, loaded by the watchdog; orders nothing.
    served: CachePadded<AtomicU64>,
    /// The thread, while it serves. \[fuse.worker\]
    thread: Mutex<Option<ThreadNo>>,
}

impl WorkerState {
    pub(super) fn new() -> Self {
        let thread = Mutex::new(&WORKER, None);
        Self { served: CachePadded::new(AtomicU64::new(0)), thread }
    }

    /// Registers the calling thread, or its end.
    pub(super) fn set_serving(&self, serves: bool) {
        *self.thread.lock() = serves.then(ThreadNo::of_caller);
    }

    pub(super) fn set_served(&self, served: u64) {
        self.served.store(served, Ordering::Relaxed);
    }

    pub(super) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// Sets the thread's class, if there is a thread.
    pub(super) fn set_class(&self, class: Class) {
        if let Some(thread) = *self.thread.lock() {
            // `can_return` has tried it.
            let _ = thread.set_class(class);
        }
    }

    /// Keeps the thread on `cores`, if there is a thread.
    pub(super) fn keep_on(&self, cores: &CpuSet) {
        if let Some(thread) = *self.thread.lock() {
            // Where the kernel refuses, the thread stays where it may be.
            let _ = thread.run_on(cores);
        }
    }

    /// Whether the thread is runnable, and its run time. False and zero if it has ended.
    pub(super) fn run_state(&self) -> (bool, Duration) {
        let thread = *self.thread.lock();
        let Some(thread) = thread else { return (false, Duration::ZERO) };
        let read = |what| std::fs::read_to_string(format!("/proc/self/task/{thread}/{what}"));
        // A thread that cannot be seen counts as starved.
        let runs = read("stat").map_or(true, |line| is_runnable(&line));
        let ran = read("schedstat").map_or(Duration::ZERO, |line| ran(&line));
        (runs, ran)
    }
}

/// Whether a line of `stat` is that of a runnable thread.
fn is_runnable(line: &str) -> bool {
    // The name in parentheses may have any characters.
    line.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('R'))
}

/// The core of a thread of the machine; none if it has ended or cannot be seen. This may wait for
/// what that thread waits for, so no thread that answers requests may call it.
pub(super) fn core_of(thread: u32) -> Option<usize> {
    core(&std::fs::read_to_string(format!("/proc/{thread}/stat")).ok()?)
}

/// The same, from a line of `stat`: its 39th field.
fn core(line: &str) -> Option<usize> {
    let (_, rest) = line.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(36)?.parse().ok()
}

/// A thread's run time, from its `schedstat`; zero where the kernel does not count.
fn ran(line: &str) -> Duration {
    let first = line.split(' ').next().and_then(|number| number.parse().ok());
    first.map_or(Duration::ZERO, Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc() {
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
    fn the_calling_thread_is_runnable() {
        let worker = WorkerState::new();
        assert_eq!(worker.run_state(), (false, Duration::ZERO));
        worker.set_serving(true);
        worker.set_served(5);
        assert!(worker.run_state().0 && worker.served() == 5);
        worker.set_serving(false);
        assert_eq!(worker.run_state(), (false, Duration::ZERO));
    }
}
