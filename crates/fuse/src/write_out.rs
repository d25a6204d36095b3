//! Waits, for a limited time, until the kernel has written the changed pages of a file.
//!
//! The kernel writes them while it handles a notice to forget the contents of the file. Each write
//! is a request to this server. So a thread of its own sends the notice: the threads that read
//! requests must answer the writes. If all of them wait for notices, the time limit ends that.

use nextent_sync::atomic::{AtomicUsize, Ordering};
use nextent_sync::{Arc, Condvar, Duration, LockClass, Mutex, thread};

/// Held for a few instructions.
static WRITE_OUT: LockClass = LockClass::new("fuse.write-out", 5);

/// The most notices whose threads run at a time.
const MOST: usize = 8;
/// The longest wait for a notice.
const LONGEST: Duration = Duration::from_millis(200);

/// The notices of a mount that the kernel handles.
#[derive(Default)]
pub(crate) struct WriteOuts {
    running: AtomicUsize,
}

/// Counts a running notice until it is dropped.
struct Running(Arc<WriteOuts>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Outcome {
    /// \[fuse.write-out\]
    done: Mutex<bool>,
    changed: Condvar,
}

impl WriteOuts {
    /// Calls `notice` in a thread of its own, and waits until it returns. False if it does not
    /// return in time, or too many others run.
    pub(crate) fn run(self: &Arc<Self>, notice: impl FnOnce() + Send + 'static) -> bool {
        let next = |count| (count < MOST).then_some(count + 1);
        if self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_err() {
            return false;
        }
        let running = Running(Arc::clone(self));
        let outcome =
            Arc::new(Outcome { done: Mutex::new(&WRITE_OUT, false), changed: Condvar::new() });
        let theirs = Arc::clone(&outcome);
        drop(thread::spawn(move || {
            notice();
            drop(running);
            *theirs.done.lock() = true;
            theirs.changed.notify_one();
        }));
        let mut done = outcome.done.lock();
        if !*done {
            outcome.changed.wait_for(&mut done, LONGEST);
        }
        *done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nextent_sync::atomic::AtomicBool;

    #[test]
    fn a_notice_that_does_not_return_ends_the_wait() {
        let outs = Arc::new(WriteOuts::default());
        assert!(outs.run(|| ()));
        let open = Arc::new(AtomicBool::new(false));
        for _ in 0..MOST {
            let open = Arc::clone(&open);
            let wait = move || {
                while !open.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
            };
            assert!(!outs.run(wait));
        }
        assert!(!outs.run(|| unreachable!("too many run")));
        open.store(true, Ordering::Relaxed);
        while outs.running.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
        assert!(outs.run(|| ()));
    }
}
