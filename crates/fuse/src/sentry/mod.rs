//! Has the threads that serve a core count as idle while nobody else wants that core.
//!
//! Linux wakes a client on whichever core is idle, and where the server's thread answers there is
//! none: so the client moves to another core, which must be woken for it, at each request. A core
//! on which only threads of the lowest class are is idle to Linux: the client stays. But such a
//! thread gets nothing where anybody else computes.
//!
//! Where more threads would run than there are cores no core is idle and nobody moves, and threads
//! are as usual.
//!
//! Over io_uring each core has threads of its own. Over `/dev/fuse` all threads have one queue
//! ([`crew`]): while one client asks ([`lead`]), one of them answers alone, is of the lowest class
//! and follows it ([`follow`], [`scout`]), and the others rest.
//!
//! So one more thread, the sentry, looks each millisecond while requests come, or each fourth where
//! nobody was harmed for long. What it promises:
//!
//! - A thread is of the lowest class only while the sentry looks. Before the sentry goes to sleep,
//!   since no requests come, and when it ends, however, all threads are as usual.
//! - A core whose threads would run and do not while a request waits is as usual some three looks
//!   later. Who holds a lock of the engine and does not run is one of these.
//! - Nobody rests unless the sentry looks, nor for more than two looks while the one that answers
//!   is busy with one request and another may wait.
//! - Where threads could not be put back (who is not root, without `RLIMIT_NICE`), there is no
//!   sentry and all is as usual.
//!
//! Threads tell the sentry how many requests they have answered by a plain store to a line of their
//! own, and wake it if it sleeps.

mod crew;
mod follow;
mod lead;
mod member;
mod scout;
mod seat;
mod watch;

pub(crate) use member::{Places, Turn};

use std::fs::File;
use std::os::unix::fs::FileExt;

use nextent_fuse_sys::{Class, ThreadNo};
use nextent_num::to_u64;
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::thread::{self, JoinHandle, Thread};
use nextent_sync::{Arc, Duration, OnceLock, now, sleep};

use rustix::process::setpriority_process;
use rustix::thread::{gettid, sched_getaffinity};

use crew::Crew;
use lead::Lead;
use scout::Scout;
use seat::Seat;
use watch::{Lasting, Look, SELDOM, Stall, TICK, Watch};

/// Requests of one thread for which a sleeping sentry is woken: seldom enough not to be felt.
const WAKE: u64 = 16;

/// The sentry's nice value: before all others, lest it be late where many compute.
const FIRST: i32 = -20;

/// Where the kernel says how many threads run.
const LOAD: &str = "/proc/loadavg";

/// What threads and the sentry share.
struct Shared {
    cores: Vec<Core>,
    /// Of the only core's threads, which is none then: they have one queue. And who looks where
    /// their clients run.
    crew: Option<(Crew, Scout)>,
    /// The kernel's count of requests without an answer, if it can be read.
    waiting: Option<File>,
    /// What the kernel says of the machine's load.
    load: File,
    /// Nobody looks. Relaxed: who misses it sees it at its next request.
    asleep: AtomicBool,
    /// The mount has ended. Relaxed: the wake-up orders it.
    over: AtomicBool,
    sentry: OnceLock<Thread>,
}

/// A core and the threads that serve it.
struct Core {
    number: u16,
    seats: Vec<Seat>,
}

/// Looks until it is dropped, when all threads that it watched must have ended.
pub(crate) struct Sentry {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// A thread's, for as long as it serves.
pub(crate) struct Served {
    shared: Arc<Shared>,
    at: (usize, usize),
    served: u64,
}

impl Sentry {
    /// Watches over `threads` threads on each of `cores`. `waiting` is what the kernel says of
    /// requests without an answer. None where threads could not be put back, or without `/proc`.
    pub(crate) fn start(cores: &[u16], threads: usize, waiting: Option<File>) -> Option<Self> {
        let seats = || (0..threads).map(|_| Seat::new()).collect();
        let core = |number: &u16| Core { number: *number, seats: seats() };
        Self::begin(cores.iter().map(core).collect(), None, waiting)
    }

    /// As [`Self::start`], over `threads` threads that have one queue.
    pub(crate) fn over_queue(threads: usize, waiting: Option<File>) -> Option<Self> {
        let seats = (0..threads).map(|_| Seat::new()).collect();
        let crew = Crew::new(threads, sched_getaffinity(None).ok()?);
        let all = Core { number: 0, seats };
        Self::begin(vec![all], Some((crew, Lead::new(threads))), waiting)
    }

    fn begin(cores: Vec<Core>, crew: Option<(Crew, Lead)>, waiting: Option<File>) -> Option<Self> {
        let load = File::open(LOAD).ok()?;
        if !thread::spawn(can_return).join().unwrap_or(false) {
            return None;
        }
        let (crew, lead) = crew.unzip();
        let crew = crew.map(|crew| (crew, Scout::start(seat::core_of)));
        let shared = Arc::new(Shared {
            load,
            cores,
            crew,
            waiting,
            asleep: AtomicBool::new(false),
            over: AtomicBool::new(false),
            sentry: OnceLock::new(),
        });
        let looks = Arc::clone(&shared);
        let thread = Some(thread::spawn(move || looks.watch(lead)));
        Some(Self { shared, thread })
    }

    /// The place of the `n`-th thread on a core; none if the core is not watched.
    pub(crate) fn place(&self, core: u16, n: usize) -> Option<Place> {
        let at = self.shared.cores.iter().position(|known| known.number == core)?;
        Some(Place { shared: Arc::clone(&self.shared), at: (at, n) })
    }
}

impl Drop for Sentry {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Where a thread will serve.
pub(crate) struct Place {
    shared: Arc<Shared>,
    at: (usize, usize),
}

impl Place {
    /// The calling thread serves.
    pub(crate) fn take(self) -> Served {
        let served = Served { shared: self.shared, at: self.at, served: 0 };
        served.seat().take(true);
        served
    }
}

impl Served {
    fn seat(&self) -> &Seat {
        &self.shared.cores[self.at.0].seats[self.at.1]
    }

    /// A request is answered.
    pub(crate) fn one(&mut self) {
        self.served += 1;
        self.seat().note(self.served);
        if self.shared.asleep.load(Ordering::Relaxed)
            && self.served.is_multiple_of(WAKE)
            && let Some(sentry) = self.shared.sentry.get()
        {
            sentry.unpark();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.seat().take(false);
    }
}

/// Whether a thread of the caller's kind may go below and come back; it is the thread that tries.
fn can_return() -> bool {
    let me = ThreadNo::of_caller();
    me.class() == Some(Class::Usual)
        && me.set_class(Class::Idle).is_ok()
        && me.set_class(Class::Usual).is_ok()
}

impl Shared {
    fn crew(&self) -> Option<&Crew> {
        self.crew.as_ref().map(|(crew, _)| crew)
    }

    /// The sentry's own work; `lead` if its threads are a crew.
    fn watch(&self, mut lead: Option<Lead>) {
        let _usual_at_the_end = AllUsual(self);
        let _ = self.sentry.set(thread::current());
        // Whoever may be put back may do this too, mostly; it looks for a few microseconds.
        let _ = setpriority_process(Some(gettid()), FIRST);
        // Of a crew another thread may still run that has just answered.
        let crew = self.crew().map(|crew| u64::from(crew.anywhere().count()) + 1);
        let room = crew.unwrap_or(to_u64(self.cores.len()));
        let mut watches: Vec<_> = self.cores.iter().map(|_| Watch::new()).collect();
        let mut served: Vec<_> = self.cores.iter().map(Core::served).collect();
        let mut crowd = Lasting::default();
        let mut last = now();
        let mut ticks = 1;
        while !self.over.load(Ordering::Relaxed) {
            if watches.iter().all(Watch::is_quiet) {
                self.asleep.store(true, Ordering::Relaxed);
                thread::park();
                self.asleep.store(false, Ordering::Relaxed);
                served = self.cores.iter().map(Core::served).collect();
                (last, ticks) = (now(), 1);
            }
            sleep(TICK * ticks);
            let since = last.elapsed();
            last += since;
            let crowd = crowd.look(running(&self.load) > room) | self.has_company(lead.as_mut());
            for ((core, watch), before) in self.cores.iter().zip(&mut watches).zip(&mut served) {
                let now = core.served();
                let served = now.wrapping_sub(std::mem::replace(before, now));
                let look = Look { served, crowd, ticks, since };
                if let Some(class) = watch.tick(look, || self.stall(core)) {
                    self.set_class(lead.as_mut(), core, class);
                }
                if watch.class() == Class::Idle {
                    self.find_lead(lead.as_mut());
                }
            }
            ticks = if watches.iter().all(Watch::is_calm) { SELDOM } else { 1 };
        }
    }

    /// Whether a crew's threads are all wanted.
    fn has_company(&self, lead: Option<&mut Lead>) -> bool {
        let Some((lead, crew)) = lead.zip(self.crew()) else { return false };
        lead.has_company(crew, &self.cores[0].seats, || self.waiting().is_none_or(|n| n > 1))
    }

    fn set_class(&self, lead: Option<&mut Lead>, core: &Core, class: Class) {
        match lead.zip(self.crew()) {
            Some((lead, crew)) => lead.set_class(class, crew, &core.seats),
            None => core.set_class(class),
        }
    }

    fn find_lead(&self, lead: Option<&mut Lead>) {
        if let Some((lead, crew)) = lead.zip(self.crew()) {
            lead.find(crew, &self.cores[0].seats);
        }
    }

    fn stall(&self, core: &Core) -> Stall {
        let none = Stall { wanted: false, ran: Duration::ZERO };
        if self.waiting() == Some(0) {
            return none;
        }
        core.seats
            .iter()
            .map(Seat::state)
            .fold(none, |all, (runs, ran)| Stall { wanted: all.wanted | runs, ran: all.ran + ran })
    }

    /// How many requests have no answer yet; none if that cannot be seen.
    fn waiting(&self) -> Option<u64> {
        let mut text = [0; 24];
        let read = self.waiting.as_ref()?.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..read]).ok()?.trim().parse().ok()
    }
}

/// How many threads of the machine run or would, the caller left out; none if that is not told.
fn running(load: &File) -> u64 {
    let mut text = [0; 64];
    let read = load.read_at(&mut text, 0).unwrap_or(0);
    runs(std::str::from_utf8(&text[..read]).unwrap_or_default())
}

/// The same, from what the kernel says.
fn runs(text: &str) -> u64 {
    // Three averages come first, and the number of all threads last.
    let field = text.split(' ').nth(3).and_then(|field| field.split_once('/'));
    field.and_then(|(running, _)| running.parse().ok()).map_or(0, |all: u64| all.saturating_sub(1))
}

impl Core {
    fn served(&self) -> u64 {
        self.seats.iter().map(Seat::served).fold(0, u64::wrapping_add)
    }

    fn set_class(&self, class: Class) {
        self.seats.iter().for_each(|seat| seat.set_class(class));
    }
}

/// Nobody is left below, at rest, or kept on a core, when the sentry ends, be it by a panic.
struct AllUsual<'a>(&'a Shared);

impl Drop for AllUsual<'_> {
    fn drop(&mut self) {
        self.0.cores.iter().for_each(|core| core.set_class(Class::Usual));
        if let Some(crew) = self.0.crew() {
            if let Some(lead) = crew.call_all() {
                self.0.cores[0].seats[lead].keep_on(crew.anywhere());
            }
            crew.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_the_load_is_left_out() {
        assert_eq!(runs("0.20 0.18 0.12 3/80 11206\n"), 2);
        assert_eq!(runs("0.20 0.18 0.12 1/80 11206\n"), 0);
        assert_eq!(runs("0.20 0.18"), 0);
        assert_eq!(runs(""), 0);
    }
}
