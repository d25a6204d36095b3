//! Counts the requests that use the volume, so that a server can close it while the kernel may
//! still send requests.
//!
//! | step | request | closing thread |
//! |---|---|---|
//! | 1 | adds itself to the count of its thread's slot | sets `closed` |
//! | 2 | reads `closed`; if it is set, subtracts itself and fails | waits until all counts are zero |
//! | 3 | uses the volume, then subtracts itself | has the volume for itself |
//!
//! Steps 1 and 2 are sequentially consistent: either the request reads `closed`, or the closing
//! thread reads its count. Each slot has its own cache line, so requests share none.

use nextent_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use nextent_sync::{Duration, PerCore, sleep};

/// The time between two reads of the counts.
const PERIOD: Duration = Duration::from_millis(1);

/// The requests of one server.
pub(crate) struct InFlight {
    counts: PerCore<AtomicUsize>,
    closed: AtomicBool,
}

/// A counted request, until it is dropped.
pub(crate) struct Entered<'i>(&'i AtomicUsize);

impl InFlight {
    pub(crate) fn new() -> Self {
        Self { counts: PerCore::new(|_| AtomicUsize::new(0)), closed: AtomicBool::new(false) }
    }

    /// Counts a request; none after [`close`](Self::close).
    pub(crate) fn enter(&self) -> Option<Entered<'_>> {
        let count = self.counts.here();
        count.fetch_add(1, Ordering::SeqCst);
        let entered = Entered(count);
        (!self.closed.load(Ordering::SeqCst)).then_some(entered)
    }

    /// Refuses later requests, and waits for the end of those that were counted.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for count in self.counts.all() {
            while count.load(Ordering::SeqCst) > 0 {
                sleep(PERIOD);
            }
        }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // Release: the closing thread sees everything that the request has done.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// What tests run on real threads, and models under a scheduler.
#[cfg(test)]
mod protocols {
    use super::*;
    use nextent_sync::{Arc, thread};

    const THREADS: usize = 3;

    /// Requests use a volume until a thread closes it: none may use it afterwards.
    pub(super) fn no_request_uses_a_closed_volume() {
        let requests = Arc::new(InFlight::new());
        let closed = Arc::new(AtomicBool::new(false));
        let threads = (0..THREADS).map(|_| {
            let (requests, closed) = (Arc::clone(&requests), Arc::clone(&closed));
            thread::spawn(move || {
                while let Some(_entered) = requests.enter() {
                    assert!(!closed.load(Ordering::SeqCst), "the volume is closed");
                    thread::yield_now();
                    assert!(!closed.load(Ordering::SeqCst), "the volume was closed meanwhile");
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        requests.close();
        closed.store(true, Ordering::SeqCst);
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
}

#[cfg(all(test, not(feature = "model-shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn no_request_uses_a_closed_volume() {
        (0..100).for_each(|_| protocols::no_request_uses_a_closed_volume());
    }

    #[test]
    fn a_closed_volume_takes_no_request() {
        let requests = InFlight::new();
        drop(requests.enter().unwrap());
        requests.close();
        assert!(requests.enter().is_none());
        assert!(requests.counts.all().all(|count| count.load(Ordering::Relaxed) == 0));
    }
}

#[cfg(all(test, feature = "model-shuttle"))]
mod models {
    use super::protocols;
    use nextent_sync::shuttle;

    #[test]
    fn no_request_uses_a_closed_volume() {
        shuttle::check_random(protocols::no_request_uses_a_closed_volume, 1000);
    }
}
