//! Waits for space that the kernel is about to free.
//!
//! The kernel reports the close of a file after close(2) has returned, and forgets the file later
//! still. Until the server has handled these messages, a removed file keeps its blocks. So a
//! request that fails with `ENOSPC` runs again while removed files have blocks, for a limited time:
//! a process may hold such a file open.
//!
//! The messages must be read meanwhile. Over `/dev/fuse` a thread of its own runs the request
//! again, so that the thread that read it reads the next message. Over io_uring the thread that has
//! the request must answer it, and the kernel may send the message to another queue entry of the
//! same core. So the last thread of a core waits only [`SHORT`].

use nextent_sync::atomic::{AtomicUsize, Ordering};
use nextent_sync::{Arc, Duration, Instant, sleep, thread};

use crate::Server;
use crate::errno::{Errno, Result};

/// The longest wait of a request.
const LONG: Duration = Duration::from_secs(1);
/// The longest wait of a request that keeps its thread from reading messages.
const SHORT: Duration = Duration::from_millis(5);
const LAST_RUNS: u32 = 2;
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(32);

/// Whether a request failed for want of space.
pub(crate) fn is_full<R>(answered: &Result<R>) -> bool {
    matches!(answered, Err(Errno(libc::ENOSPC)))
}

/// The waiting requests of a mount, or of a core.
pub(crate) struct Waiters {
    count: AtomicUsize,
    most: usize,
}

/// Counts a waiting request until it is dropped.
struct Waiting(Arc<Waiters>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Release);
    }
}

impl Waiters {
    /// At most `most` requests wait at a time.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { count: AtomicUsize::new(0), most })
    }

    /// Counts a waiting request unless there are too many.
    fn enter(self: &Arc<Self>) -> Option<Waiting> {
        let next = |count| (count < self.most).then_some(count + 1);
        let entered = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        entered.is_ok().then(|| Waiting(Arc::clone(self)))
    }

    /// Runs a request that found no space again, in the calling thread.
    pub(crate) fn retry<R>(
        self: &Arc<Self>,
        server: &Server,
        request: impl FnMut() -> Result<R>,
    ) -> Result<R> {
        let waiting = self.enter();
        run_again(server, if waiting.is_some() { LONG } else { SHORT }, request)
    }

    /// Calls `retry` in a thread of its own; false if too many requests wait.
    pub(crate) fn spawn(self: &Arc<Self>, retry: impl FnOnce() + Send + 'static) -> bool {
        let Some(waiting) = self.enter() else { return false };
        drop(thread::spawn(move || {
            retry();
            drop(waiting);
        }));
        true
    }

    /// Waits until no request waits. Each of them waits for a limited time.
    pub(crate) fn finish(&self) {
        while self.count.load(Ordering::Acquire) > 0 {
            sleep(FIRST_PAUSE);
        }
    }
}

/// Runs `request` until it succeeds, fails otherwise, no removed file has blocks, or the time is
/// over. Without removed files it runs [`LAST_RUNS`] times: one may have been freed after an
/// earlier run, and another request's commit may have made blocks usable during the next run.
pub(crate) fn retry_long<R>(server: &Server, request: impl FnMut() -> Result<R>) -> Result<R> {
    run_again(server, LONG, request)
}

fn run_again<R>(
    server: &Server,
    longest: Duration,
    mut request: impl FnMut() -> Result<R>,
) -> Result<R> {
    let (start, mut pause, mut last_runs) = (Instant::now(), FIRST_PAUSE, 0);
    loop {
        if !server.volume.has_removed_files() || start.elapsed() >= longest {
            last_runs += 1;
        } else {
            sleep(pause);
            pause = (2 * pause).min(LAST_PAUSE);
        }
        let answered = request();
        if last_runs == LAST_RUNS || !is_full(&answered) {
            return answered;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_number_of_requests_waits() {
        let waiters = Waiters::new(1);
        let first = waiters.enter();
        assert!(first.is_some() && waiters.enter().is_none());
        assert!(!waiters.spawn(|| unreachable!()));
        drop(first);
        let (done, seen) = (Arc::new(AtomicUsize::new(0)), Waiters::new(2));
        for _ in 0..2 {
            let done = Arc::clone(&done);
            let add = move || _ = done.fetch_add(1, Ordering::Relaxed);
            assert!(seen.spawn(add));
        }
        seen.finish();
        assert_eq!(done.load(Ordering::Relaxed), 2);
        assert!(Waiters::new(0).enter().is_none());
    }
}
