//! A thread that finds out on which core a client runs, so that no thread that answers requests
//! has to.
//!
//! While a process changes its program, the kernel makes readers of its `/proc` files wait. The
//! process closes files meanwhile, which sends requests to this mount. A thread that answers and
//! reads `/proc` would wait for the client, and the client for it: a deadlock. Nor may such a
//! thread drop the last reference to a client's memory, since that writes files back.
//!
//! Invariants:
//!
//! - Neither [`ClientLocator::ask`] nor [`ClientLocator::take_report`] waits, whatever the client
//!   does.
//! - No thread waits for the locator, not even at the end of the mount. At worst no client is
//!   followed.

use nextent_fuse_sys::ThreadNo;
use nextent_num::to_usize;
use nextent_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use nextent_sync::thread::{self, Thread};
use nextent_sync::{Arc, OnceLock};
use rustix::thread::CpuSet;

/// No report, in [`Mailbox::report`], and no client, in [`Mailbox::client`].
const NONE: u32 = 0;

/// What is known of a client's core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientLocation {
    /// No report has come since the last one was taken.
    Pending,
    /// The client is gone or cannot be seen, or the report is of another client.
    Unknown,
    Core(usize),
}

/// Passes requests to the locator thread and reports back.
#[derive(Default)]
struct Mailbox {
    /// The client to locate next. The wake-up orders it.
    client: AtomicU32,
    /// The client of the last report in the upper half; in the lower half its core plus one, or
    /// zero if that is unknown. Relaxed: a report is this one word.
    report: AtomicU64,
    /// The locator is no longer wanted. Relaxed: the wake-up orders it.
    ended: AtomicBool,
    /// The locator thread, once it runs.
    locator_thread: OnceLock<ThreadNo>,
}

/// The locator thread, until this is dropped.
pub(super) struct ClientLocator {
    mailbox: Arc<Mailbox>,
    thread: Thread,
}

impl ClientLocator {
    /// Starts a thread that locates clients by `core_of`.
    pub(super) fn start(core_of: impl Fn(u32) -> Option<usize> + Send + 'static) -> Self {
        let mailbox = Arc::new(Mailbox::default());
        let shared = Arc::clone(&mailbox);
        let thread = thread::spawn(move || shared.serve(core_of));
        Self { mailbox, thread: thread.thread().clone() }
    }

    /// Asks where `client` runs, in place of an earlier question; a report that is there already.
    /// For client 0, the kernel, the core is unknown and no report comes.
    pub(super) fn ask(&self, client: u32) -> ClientLocation {
        if client == NONE {
            return ClientLocation::Unknown;
        }
        self.mailbox.client.store(client, Ordering::Relaxed);
        self.thread.unpark();
        self.take_report(client)
    }

    /// Keeps the locator thread on `cores`.
    pub(super) fn keep_on(&self, cores: &CpuSet) {
        if let Some(thread) = self.mailbox.locator_thread.get() {
            // Where the kernel refuses, the thread stays where it may be.
            let _ = thread.run_on(cores);
        }
    }

    /// Takes the report on `client`, if one has come.
    pub(super) fn take_report(&self, client: u32) -> ClientLocation {
        if self.mailbox.report.load(Ordering::Relaxed) == NONE.into() {
            return ClientLocation::Pending;
        }
        let report = self.mailbox.report.swap(NONE.into(), Ordering::Relaxed);
        let core = to_usize(report & u64::from(u32::MAX));
        match core.checked_sub(1) {
            Some(core) if report >> 32 == u64::from(client) => ClientLocation::Core(core),
            _ => ClientLocation::Unknown,
        }
    }
}

impl Drop for ClientLocator {
    fn drop(&mut self) {
        self.mailbox.ended.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

impl Mailbox {
    fn serve(&self, core_of: impl Fn(u32) -> Option<usize>) {
        let _ = self.locator_thread.set(ThreadNo::of_caller());
        while !self.ended.load(Ordering::Relaxed) {
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

    fn report(locator: &ClientLocator, client: u32) -> ClientLocation {
        let begun = now();
        loop {
            match locator.take_report(client) {
                ClientLocation::Pending => {
                    assert!(begun.elapsed() < Duration::from_secs(60), "no report")
                }
                seen => return seen,
            }
            sleep(Duration::from_millis(1));
        }
    }

    fn answer(locator: &ClientLocator, client: u32) -> ClientLocation {
        match locator.ask(client) {
            ClientLocation::Pending => report(locator, client),
            seen => seen,
        }
    }

    #[test]
    fn a_report_is_of_the_client_that_was_asked_for() {
        let locator = ClientLocator::start(|client| (client != 9).then_some(to_usize(client) - 1));
        assert_eq!(locator.take_report(3), ClientLocation::Pending);
        assert_eq!(answer(&locator, 3), ClientLocation::Core(2));
        assert_eq!(locator.take_report(3), ClientLocation::Pending);
        assert_eq!(answer(&locator, 9), ClientLocation::Unknown);
        assert_eq!(answer(&locator, 1), ClientLocation::Core(0));
        // The kernel itself is no thread, so no report would come.
        assert_eq!(locator.ask(NONE), ClientLocation::Unknown);
        assert_eq!(locator.take_report(NONE), ClientLocation::Pending);
    }

    /// A locator that waits until `open`, and then reports core 5.
    fn held(open: &Arc<AtomicBool>) -> ClientLocator {
        let open = Arc::clone(open);
        ClientLocator::start(move |_| {
            while !open.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(1));
            }
            Some(5)
        })
    }

    #[test]
    fn no_caller_waits_for_the_locator() {
        let open = Arc::new(AtomicBool::new(false));
        let (locator, other) = (held(&open), held(&open));
        other.ask(1);
        drop(other);
        locator.ask(1);
        locator.ask(2);
        assert_eq!(locator.take_report(1), ClientLocation::Pending);
        open.store(true, Ordering::Relaxed);
        while report(&locator, 2) != ClientLocation::Core(5) {}
        open.store(false, Ordering::Relaxed);
        assert_eq!(locator.ask(1), ClientLocation::Pending);
        open.store(true, Ordering::Relaxed);
        // A report on another client.
        assert_eq!(report(&locator, 4), ClientLocation::Unknown);
    }
}

#[cfg(all(test, feature = "model-shuttle"))]
mod models {
    use super::*;
    use nextent_sync::shuttle;

    /// The last client asked for is reported, however many others were asked for before.
    fn model() {
        let locator = ClientLocator::start(|client| Some(to_usize(client)));
        let mut seen = ClientLocation::Pending;
        for client in 1..=3 {
            seen = locator.ask(client);
        }
        while seen != ClientLocation::Core(3) {
            thread::yield_now();
            seen = locator.take_report(3);
        }
        // The locator thread ends, too, or this schedule does not.
    }

    #[test]
    fn the_last_client_asked_for_is_located() {
        shuttle::check_random(model, 2000);
    }
}
