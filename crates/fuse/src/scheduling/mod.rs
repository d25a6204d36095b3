//! Scheduling policy: the threads that serve a core run in the idle class while no other process
//! wants that core.
//!
//! Linux wakes a client on an idle core. The core that answered it runs a thread of the server, so
//! it is not idle. So at each request the client moves to another core, which must be woken first.
//! A core that runs only threads of the idle class counts as idle, so the client stays. But a
//! thread of the idle class gets no time on a core where another process computes. So a watchdog
//! thread returns threads to the usual class then.
//!
//! Where more threads want to run than there are cores, no core is idle, no client moves, and all
//! threads stay in the usual class.
//!
//! Over io_uring each core has threads of its own. Over `/dev/fuse` all threads read one queue
//! ([`worker_group`]). While there is one client ([`leader_policy`]), one thread, the leader,
//! answers all requests in the idle class, and the other threads sleep. The leader follows the
//! client ([`client_follower`], [`client_locator`]).
//!
//! The watchdog samples the counters each millisecond while requests come, and each fourth
//! millisecond where no thread was starved for long. Invariants:
//!
//! - A thread is in the idle class only while the watchdog is awake. Before the watchdog sleeps,
//!   and when it ends for any reason, all threads are in the usual class.
//! - A core whose threads want to run and do not, while a request waits, is back in the usual class
//!   some three samples later. A preempted holder of an engine lock is such a thread.
//! - A thread of a group sleeps only while the watchdog is awake. It sleeps for at most two samples
//!   while the leader is busy with one request and another request may wait.
//! - Without the right to return to the usual class (neither root nor `RLIMIT_NICE`) there is no
//!   watchdog, and no thread leaves the usual class.
//!
//! Threads count their answered requests by a plain store to a cache line of their own, and wake
//! the watchdog if it sleeps.

mod client_follower;
mod client_locator;
mod core_policy;
mod leader_policy;
mod worker;
mod worker_group;
mod worker_state;

pub(crate) use worker::{RequestScope, WorkerSlots};

use std::fs::File;
use std::os::unix::fs::FileExt;

use nextent_fuse_sys::{Class, ThreadNo};
use nextent_num::to_u64;
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::thread::{self, JoinHandle, Thread};
use nextent_sync::{Arc, Duration, OnceLock, now, sleep};

use rustix::process::setpriority_process;
use rustix::thread::{gettid, sched_getaffinity};

use client_locator::ClientLocator;
use core_policy::{CorePolicy, Debounced, SLOW_TICKS, Sample, Stall, TICK};
use leader_policy::LeaderPolicy;
use worker_group::WorkerGroup;
use worker_state::WorkerState;

/// A thread wakes a sleeping watchdog at each so many-th request: rarely, so that it costs nothing.
const WAKE_EVERY: u64 = 16;

/// The watchdog's nice value: the highest, so that it is in time on a busy machine.
const WATCHDOG_NICE: i32 = -20;

/// The kernel's count of runnable threads.
const LOAD: &str = "/proc/loadavg";

/// What the threads and the watchdog share.
struct Shared {
    cores: Vec<Core>,
    /// For threads that read one queue: their group, and the thread that locates their clients.
    /// There is one entry in `cores` then.
    group: Option<(WorkerGroup, ClientLocator)>,
    /// The kernel's count of requests without an answer, if it can be read.
    waiting: Option<File>,
    /// The kernel's report on the machine's load.
    load: File,
    /// The watchdog sleeps. Relaxed: a thread that misses it sees it at its next request.
    asleep: AtomicBool,
    /// The mount has ended. Relaxed: the wake-up orders it.
    ended: AtomicBool,
    watchdog: OnceLock<Thread>,
}

/// A core and the threads that serve it.
struct Core {
    number: u16,
    workers: Vec<WorkerState>,
}

/// The watchdog thread. It ends when this is dropped, after all threads that it watches.
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// A thread's registration, for as long as it serves.
pub(crate) struct ServingWorker {
    shared: Arc<Shared>,
    at: (usize, usize),
    served: u64,
}

impl Watchdog {
    /// Watches `threads` threads on each of `cores`. `waiting` is the kernel's count of requests
    /// without an answer. None where threads could not return to the usual class, or without
    /// `/proc`.
    pub(crate) fn start(cores: &[u16], threads: usize, waiting: Option<File>) -> Option<Self> {
        let workers = || (0..threads).map(|_| WorkerState::new()).collect();
        let core = |number: &u16| Core { number: *number, workers: workers() };
        Self::begin(cores.iter().map(core).collect(), None, waiting)
    }

    /// As [`Self::start`], for `threads` threads that read one queue.
    pub(crate) fn over_queue(threads: usize, waiting: Option<File>) -> Option<Self> {
        let workers = (0..threads).map(|_| WorkerState::new()).collect();
        let group = WorkerGroup::new(threads, sched_getaffinity(None).ok()?);
        let all = Core { number: 0, workers };
        Self::begin(vec![all], Some((group, LeaderPolicy::new(threads))), waiting)
    }

    fn begin(
        cores: Vec<Core>,
        group: Option<(WorkerGroup, LeaderPolicy)>,
        waiting: Option<File>,
    ) -> Option<Self> {
        let load = File::open(LOAD).ok()?;
        if !thread::spawn(can_return).join().unwrap_or(false) {
            return None;
        }
        let (group, leader) = group.unzip();
        let group = group.map(|group| (group, ClientLocator::start(worker_state::core_of)));
        let shared = Arc::new(Shared {
            load,
            cores,
            group,
            waiting,
            asleep: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            watchdog: OnceLock::new(),
        });
        let watched = Arc::clone(&shared);
        let thread = Some(thread::spawn(move || watched.watch(leader)));
        Some(Self { shared, thread })
    }

    /// The slot of the `n`-th thread on a core; none if the core is not watched.
    pub(crate) fn slot(&self, core: u16, n: usize) -> Option<WorkerSlot> {
        let at = self.shared.cores.iter().position(|known| known.number == core)?;
        Some(WorkerSlot { shared: Arc::clone(&self.shared), at: (at, n) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// The slot that a thread will serve from.
pub(crate) struct WorkerSlot {
    shared: Arc<Shared>,
    at: (usize, usize),
}

impl WorkerSlot {
    /// Registers the calling thread.
    pub(crate) fn register(self) -> ServingWorker {
        let served = ServingWorker { shared: self.shared, at: self.at, served: 0 };
        served.worker().set_serving(true);
        served
    }
}

impl ServingWorker {
    fn worker(&self) -> &WorkerState {
        &self.shared.cores[self.at.0].workers[self.at.1]
    }

    /// Counts an answered request.
    pub(crate) fn count_request(&mut self) {
        self.served += 1;
        self.worker().set_served(self.served);
        if self.shared.asleep.load(Ordering::Relaxed)
            && self.served.is_multiple_of(WAKE_EVERY)
            && let Some(watchdog) = self.shared.watchdog.get()
        {
            watchdog.unpark();
        }
    }
}

impl Drop for ServingWorker {
    fn drop(&mut self) {
        self.worker().set_serving(false);
    }
}

/// Whether a thread may enter the idle class and return. The calling thread tries it.
fn can_return() -> bool {
    let me = ThreadNo::of_caller();
    me.class() == Some(Class::Usual)
        && me.set_class(Class::Idle).is_ok()
        && me.set_class(Class::Usual).is_ok()
}

impl Shared {
    fn group(&self) -> Option<&WorkerGroup> {
        self.group.as_ref().map(|(group, _)| group)
    }

    /// The watchdog's loop; with a leader policy if its threads are a group.
    fn watch(&self, mut leader: Option<LeaderPolicy>) {
        let _restore_at_the_end = RestoreAll(self);
        let _ = self.watchdog.set(thread::current());
        // A process that may return to the usual class may mostly raise this, too. A sample is
        // short.
        let _ = setpriority_process(Some(gettid()), WATCHDOG_NICE);
        // Another thread of the group may still run when its request is answered.
        let group = self.group().map(|group| u64::from(group.anywhere().count()) + 1);
        let room = group.unwrap_or(to_u64(self.cores.len()));
        let mut policies: Vec<_> = self.cores.iter().map(|_| CorePolicy::new()).collect();
        let mut served: Vec<_> = self.cores.iter().map(Core::served).collect();
        let mut overloaded = Debounced::default();
        let mut last = now();
        let mut ticks = 1;
        while !self.ended.load(Ordering::Relaxed) {
            if policies.iter().all(CorePolicy::is_quiet) {
                self.asleep.store(true, Ordering::Relaxed);
                thread::park();
                self.asleep.store(false, Ordering::Relaxed);
                served = self.cores.iter().map(Core::served).collect();
                (last, ticks) = (now(), 1);
            }
            sleep(TICK * ticks);
            let since = last.elapsed();
            last += since;
            let overloaded = overloaded.update(running(&self.load) > room)
                | self.needs_all_workers(leader.as_mut());
            for ((core, policy), before) in self.cores.iter().zip(&mut policies).zip(&mut served) {
                let now = core.served();
                let served = now.wrapping_sub(std::mem::replace(before, now));
                let sample = Sample { served, overloaded, ticks, since };
                if let Some(class) = policy.tick(sample, || self.stall(core)) {
                    self.set_class(leader.as_mut(), core, class);
                }
                if policy.class() == Class::Idle {
                    self.adopt_leader(leader.as_mut());
                }
            }
            ticks = if policies.iter().all(CorePolicy::is_calm) { SLOW_TICKS } else { 1 };
        }
    }

    /// Whether all threads of a group are needed.
    fn needs_all_workers(&self, leader: Option<&mut LeaderPolicy>) -> bool {
        let Some((leader, group)) = leader.zip(self.group()) else { return false };
        leader.needs_all_workers(group, &self.cores[0].workers, || {
            self.waiting().is_none_or(|n| n > 1)
        })
    }

    fn set_class(&self, leader: Option<&mut LeaderPolicy>, core: &Core, class: Class) {
        match leader.zip(self.group()) {
            Some((leader, group)) => leader.set_class(class, group, &core.workers),
            None => core.set_class(class),
        }
    }

    fn adopt_leader(&self, leader: Option<&mut LeaderPolicy>) {
        if let Some((leader, group)) = leader.zip(self.group()) {
            leader.adopt_leader(group, &self.cores[0].workers);
        }
    }

    fn stall(&self, core: &Core) -> Stall {
        let none = Stall { wanted: false, ran: Duration::ZERO };
        if self.waiting() == Some(0) {
            return none;
        }
        core.workers
            .iter()
            .map(WorkerState::run_state)
            .fold(none, |all, (runs, ran)| Stall { wanted: all.wanted | runs, ran: all.ran + ran })
    }

    /// Requests without an answer; none if the kernel does not say.
    fn waiting(&self) -> Option<u64> {
        let mut text = [0; 24];
        let read = self.waiting.as_ref()?.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..read]).ok()?.trim().parse().ok()
    }
}

/// Runnable threads of the machine, without the caller; zero if the kernel does not say.
fn running(load: &File) -> u64 {
    let mut text = [0; 64];
    let read = load.read_at(&mut text, 0).unwrap_or(0);
    runs(std::str::from_utf8(&text[..read]).unwrap_or_default())
}

/// The same, from the text of `/proc/loadavg`.
fn runs(text: &str) -> u64 {
    // Three averages come first, and the number of all threads last.
    let field = text.split(' ').nth(3).and_then(|field| field.split_once('/'));
    field.and_then(|(running, _)| running.parse().ok()).map_or(0, |all: u64| all.saturating_sub(1))
}

impl Core {
    fn served(&self) -> u64 {
        self.workers.iter().map(WorkerState::served).fold(0, u64::wrapping_add)
    }

    fn set_class(&self, class: Class) {
        self.workers.iter().for_each(|worker| worker.set_class(class));
    }
}

/// Returns all threads to the usual class, wakes them and unpins them when the watchdog ends, also
/// by a panic.
struct RestoreAll<'a>(&'a Shared);

impl Drop for RestoreAll<'_> {
    fn drop(&mut self) {
        self.0.cores.iter().for_each(|core| core.set_class(Class::Usual));
        if let Some(group) = self.0.group() {
            if let Some(leader) = group.release_all() {
                self.0.cores[0].workers[leader].keep_on(group.anywhere());
            }
            group.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_is_left_out_of_the_load() {
        assert_eq!(runs("0.20 0.18 0.12 3/80 11206\n"), 2);
        assert_eq!(runs("0.20 0.18 0.12 1/80 11206\n"), 0);
        assert_eq!(runs("0.20 0.18"), 0);
        assert_eq!(runs(""), 0);
    }
}
