//! Who looks where a client runs, so that no thread that answers does.
//!
//! The kernel lets nobody see a process that changes its program until that is done: until all that
//! it closes on the way is closed. A client's last requests before its new program are of such
//! files, so whoever answers must not look at it: each would wait for the other, for ever. Nor must
//! it be the last to let go of a client's memory, for files are written back then.
//!
//! What this promises:
//!
//! - Neither who asks nor who takes a report waits, whatever the client does.
//! - Nothing waits for the scout, not even its mount's end: the worst is that nobody is followed.

use nextent_fuse_sys::ThreadNo;
use nextent_num::to_usize;
use nextent_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use nextent_sync::thread::{self, Thread};
use nextent_sync::{Arc, OnceLock};
use rustix::thread::CpuSet;

/// No report, in [`Board::report`], and nobody asked for, in [`Board::client`].
const NONE: u32 = 0;

/// What is known of where a client runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// No report has come since the last one was taken.
    NotYet,
    /// It is gone, or not to be seen; or another was asked for.
    Nowhere,
    On(usize),
}

/// Between who asks and the scout.
#[derive(Default)]
struct Board {
    /// Who is looked for next. The wake-up orders it.
    client: AtomicU32,
    /// The client of the last report, and its core and one in the lower half, or nothing there.
    /// Relaxed: it is all that there is to know.
    report: AtomicU64,
    /// Nobody asks any more. Relaxed: the wake-up orders it.
    over: AtomicBool,
    /// The scout, once it runs.
    looks: OnceLock<ThreadNo>,
}

/// A thread that looks where clients run, until this is dropped.
pub(super) struct Scout {
    board: Arc<Board>,
    thread: Thread,
}

impl Scout {
    /// Looks for threads of the machine by `core_of`.
    pub(super) fn start(core_of: impl Fn(u32) -> Option<usize> + Send + 'static) -> Self {
        let board = Arc::new(Board::default());
        let looks = Arc::clone(&board);
        let thread = thread::spawn(move || looks.watch(core_of));
        Self { board, thread: thread.thread().clone() }
    }

    /// Has it look where `client` runs, perhaps instead of who was asked for before; says what is
    /// seen at once. Nobody is nowhere, and no report comes.
    pub(super) fn ask(&self, client: u32) -> Sight {
        if client == NONE {
            return Sight::Nowhere;
        }
        self.board.client.store(client, Ordering::Relaxed);
        self.thread.unpark();
        self.take(client)
    }

    /// Has it look from one of `cores`.
    pub(super) fn keep_on(&self, cores: &CpuSet) {
        if let Some(thread) = self.board.looks.get() {
            // Where the kernel refuses, it stays where it may be.
            let _ = thread.run_on(cores);
        }
    }

    /// Takes the report on `client`, if one has come.
    pub(super) fn take(&self, client: u32) -> Sight {
        if self.board.report.load(Ordering::Relaxed) == NONE.into() {
            return Sight::NotYet;
        }
        let report = self.board.report.swap(NONE.into(), Ordering::Relaxed);
        let core = to_usize(report & u64::from(u32::MAX));
        match core.checked_sub(1) {
            Some(core) if report >> 32 == u64::from(client) => Sight::On(core),
            _ => Sight::Nowhere,
        }
    }
}

impl Drop for Scout {
    fn drop(&mut self) {
        self.board.over.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

impl Board {
    fn watch(&self, core_of: impl Fn(u32) -> Option<usize>) {
        let _ = self.looks.set(ThreadNo::of_caller());
        while !self.over.load(Ordering::Relaxed) {
            let client = self.client.swap(NONE, Ordering::Relaxed);
            if client == NONE {
                thread::park();
                continue;
            }
            let core = core_of(client).and_then(|core| u32::try_from(core + 1).ok());
            let report = u64::from(client) << 32 | u64::from(core.unwrap_or(0));
            self.report.store(report, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(feature = "model-shuttle")))]
mod tests {
    use super::*;
    use nextent_sync::{Duration, now, sleep};

    fn report(scout: &Scout, client: u32) -> Sight {
        let begun = now();
        loop {
            match scout.take(client) {
                Sight::NotYet => assert!(begun.elapsed() < Duration::from_secs(60), "no report"),
                seen => return seen,
            }
            sleep(Duration::from_millis(1));
        }
    }

    fn answer(scout: &Scout, client: u32) -> Sight {
        match scout.ask(client) {
            Sight::NotYet => report(scout, client),
            seen => seen,
        }
    }

    #[test]
    fn who_asks_has_a_report_on_that_client() {
        let scout = Scout::start(|client| (client != 9).then_some(to_usize(client) - 1));
        assert_eq!(scout.take(3), Sight::NotYet);
        assert_eq!(answer(&scout, 3), Sight::On(2));
        assert_eq!(scout.take(3), Sight::NotYet);
        assert_eq!(answer(&scout, 9), Sight::Nowhere);
        assert_eq!(answer(&scout, 1), Sight::On(0));
        // The kernel itself, whom no thread is: there would never be a report.
        assert_eq!(scout.ask(NONE), Sight::Nowhere);
        assert_eq!(scout.take(NONE), Sight::NotYet);
    }

    /// Looks until `open`, and then sees that clients are on core 5.
    fn held(open: &Arc<AtomicBool>) -> Scout {
        let open = Arc::clone(open);
        Scout::start(move |_| {
            while !open.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(1));
            }
            Some(5)
        })
    }

    #[test]
    fn nobody_waits_for_who_looks() {
        let open = Arc::new(AtomicBool::new(false));
        let (scout, other) = (held(&open), held(&open));
        other.ask(1);
        drop(other);
        scout.ask(1);
        scout.ask(2);
        assert_eq!(scout.take(1), Sight::NotYet);
        open.store(true, Ordering::Relaxed);
        while report(&scout, 2) != Sight::On(5) {}
        open.store(false, Ordering::Relaxed);
        assert_eq!(scout.ask(1), Sight::NotYet);
        open.store(true, Ordering::Relaxed);
        // On another.
        assert_eq!(report(&scout, 4), Sight::Nowhere);
    }
}

#[cfg(all(test, feature = "model-shuttle"))]
mod models {
    use super::*;
    use nextent_sync::shuttle;

    /// Whoever is asked for last is reported on, however often another was before.
    fn model() {
        let scout = Scout::start(|client| Some(to_usize(client)));
        let mut seen = Sight::NotYet;
        for client in 1..=3 {
            seen = scout.ask(client);
        }
        while seen != Sight::On(3) {
            thread::yield_now();
            seen = scout.take(3);
        }
        // Its own thread comes to its end, or this schedule does not.
    }

    #[test]
    fn who_is_asked_for_last_is_seen() {
        shuttle::check_random(model, 2000);
    }
}
