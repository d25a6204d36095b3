//! The threads of one run: prepared, released together, warmed up, timed, stopped.
//!
//! Each thread counts its own operations, a pair of cache lines apart from its neighbours; the
//! clock belongs to the caller, who reads all counters when the warm-up is over and again at the
//! end. So nothing is shared while the clock runs but one word that only ever tells to go on.

use super::latency::Sampler;
use super::pin::pin;
use super::rest::Rests;
use crate::target::{OpError, Target};
use crate::workload::{Ends, Job, Left, Params, Seat, Step, Work};
use hdrhistogram::Histogram;
use nextent_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use nextent_sync::stats::{self, ClassStats};
use nextent_sync::{CachePadded, Duration, Instant, now, thread};

/// How long between two looks at the clock and at the wish to stop.
const SLICE: Duration = Duration::from_millis(5);

/// When threads are to do what. [release when set, acquire when read]
mod phase {
    pub(super) const GATHER: usize = 0;
    pub(super) const WARM: usize = 1;
    pub(super) const TIMED: usize = 2;
    pub(super) const STOP: usize = 3;
}

/// How a run is to go.
#[derive(Clone, Copy)]
pub(crate) struct Orders<'a> {
    pub(crate) threads: usize,
    pub(crate) seconds: Duration,
    /// How long threads work before that.
    pub(crate) warm_up: Duration,
    /// Each thread on a core of its own, the first on this one of those that we may use.
    pub(crate) pin: Option<usize>,
    /// Whether threads rest after each operation; see `rest`.
    pub(crate) rests: bool,
    /// Count locks and shared stores while the clock runs, until so many operations are done (the
    /// time being a limit).
    pub(crate) counted: Option<u64>,
    pub(crate) params: &'a Params,
    /// The user wants to stop.
    pub(crate) interrupted: &'a (dyn Fn() -> bool + Sync),
}

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) took: Duration,
    /// Operations of each thread.
    pub(crate) per_thread: Vec<u64>,
    /// Bytes read and written.
    pub(crate) bytes: u64,
    pub(crate) latency: Histogram<u64>,
    pub(crate) left: Vec<Left>,
    /// What ended the run early.
    pub(crate) failure: Option<OpError>,
    pub(crate) locks: Vec<ClassStats>,
}

/// What one thread counts.
#[derive(Default)]
struct Counter {
    /// Operations since the release. [relaxed: written by its thread only]
    ops: AtomicU64,
    /// Bytes since the release. [as above]
    bytes: AtomicU64,
}

struct Shared {
    phase: AtomicUsize,
    /// Threads that are prepared.
    ready: AtomicUsize,
    /// Threads that have nothing left to do.
    over: AtomicUsize,
    counters: Vec<CachePadded<Counter>>,
}

/// What a thread returns.
struct Report {
    sampler: Sampler,
    stopped: Instant,
    left: Result<Left, OpError>,
}

/// Runs a workload on a target.
pub(crate) fn run<J: Job, T: Target>(target: &T, orders: &Orders<'_>) -> Result<Outcome, OpError> {
    let space = {
        use crate::target::Session;
        target.session()?.space()?
    };
    let Orders { params, .. } = *orders;
    let threads = orders.threads;
    let counters = std::iter::repeat_with(CachePadded::default).take(threads).collect();
    let shared = Shared {
        phase: AtomicUsize::new(phase::GATHER),
        ready: AtomicUsize::new(0),
        over: AtomicUsize::new(0),
        counters,
    };
    thread::scope(|scope| {
        let shared = &shared;
        let members: Vec<_> = (0..threads)
            .map(|thread| {
                let seat = Seat { thread, threads, space, params };
                scope.spawn(move || {
                    let core = orders.pin.map(|first| first + thread);
                    member::<J, T>(target, &seat, shared, core, orders.rests)
                })
            })
            .collect();
        let timed = conduct::<J>(shared, orders);
        let reports = members.into_iter().map(|member| member.join());
        let reports: Result<Vec<Report>, _> = reports.collect();
        let reports = reports.map_err(|_| OpError::Other("a thread panicked".into()))?;
        Ok(timed.outcome::<J>(reports, shared))
    })
}

/// One thread's life.
fn member<J: Job, T: Target>(
    target: &T,
    seat: &Seat<'_>,
    shared: &Shared,
    core: Option<usize>,
    rests: bool,
) -> Report {
    let mut sampler = Sampler::new(seat.thread);
    let prepared = core.map_or(Ok(()), pinned).and_then(|()| {
        let session = target.session()?;
        let work = J::Work::prepare(&session, seat)?;
        Ok((session, work))
    });
    shared.ready.fetch_add(1, Ordering::AcqRel);
    let worked = prepared.and_then(|(session, mut work)| {
        while shared.phase.load(Ordering::Acquire) == phase::GATHER {
            thread::yield_now();
        }
        let rests = rests.then(|| Rests::new(seat.thread));
        let done = toil(&session, &mut work, seat.thread, shared, &mut sampler, rests);
        let stopped = now();
        if J::ENDS == Ends::WithFirst || done.is_err() {
            shared.phase.store(phase::STOP, Ordering::Release);
        }
        shared.over.fetch_add(1, Ordering::AcqRel);
        done?;
        Ok((stopped, work, session))
    });
    match worked {
        Ok((stopped, work, session)) => Report { sampler, stopped, left: work.finish(&session) },
        Err(error) => {
            shared.phase.store(phase::STOP, Ordering::Release);
            Report { sampler, stopped: now(), left: Err(error) }
        }
    }
}

/// Operates until told to stop, or until there is nothing left to do.
fn toil<S: crate::target::Session, W: Work<S>>(
    session: &S,
    work: &mut W,
    thread: usize,
    shared: &Shared,
    sampler: &mut Sampler,
    mut rests: Option<Rests>,
) -> Result<(), OpError> {
    let counter = &*shared.counters[thread];
    let (mut ops, mut bytes, mut seen) = (0, 0, phase::WARM);
    loop {
        let phase = shared.phase.load(Ordering::Relaxed);
        if phase != seen {
            if phase == phase::STOP {
                return Ok(());
            }
            seen = phase;
            sampler.begin();
        }
        let step = if sampler.is_due() {
            let began = now();
            let step = work.step(session);
            sampler.record(began);
            step?
        } else {
            work.step(session)?
        };
        let Step::Did(moved) = step else { return Ok(()) };
        if let Some(rests) = &mut rests {
            rests.rest();
        }
        ops += 1;
        counter.ops.store(ops, Ordering::Relaxed);
        if moved > 0 {
            bytes += moved;
            counter.bytes.store(bytes, Ordering::Relaxed);
        }
    }
}

/// What the clock saw.
struct Timed {
    began: Instant,
    ended: Instant,
    /// Operations and bytes of each thread when the clock was started.
    before: Vec<(u64, u64)>,
    after: Vec<(u64, u64)>,
    locks: Vec<ClassStats>,
}

/// Releases the threads, keeps the time, stops them.
fn conduct<J: Job>(shared: &Shared, orders: &Orders<'_>) -> Timed {
    while shared.ready.load(Ordering::Acquire) < orders.threads {
        thread::sleep(Duration::from_micros(200));
    }
    let finite = J::ENDS != Ends::ByTime;
    if !finite {
        shared.advance(phase::GATHER, phase::WARM);
        shared.wait(orders, orders.warm_up, |_| false);
    }
    if orders.counted.is_some() {
        stats::reset();
        stats::enable();
    }
    let before = shared.read();
    let began = now();
    shared.advance(if finite { phase::GATHER } else { phase::WARM }, phase::TIMED);
    let sum = |counts: &[(u64, u64)]| counts.iter().map(|(ops, _)| ops).sum::<u64>();
    let start = sum(&before);
    let enough = orders.counted.unwrap_or(u64::MAX);
    let limit = if J::ENDS == Ends::WithLast { Duration::MAX } else { orders.seconds };
    let counting = orders.counted.is_some();
    shared.wait(orders, limit, |shared| {
        let all = shared.over.load(Ordering::Acquire) == orders.threads;
        all || (counting && sum(&shared.read()) - start >= enough)
    });
    let after = shared.read();
    let ended = now();
    let locks = if counting { stats::snapshot() } else { Vec::new() };
    stats::disable();
    shared.phase.store(phase::STOP, Ordering::Release);
    Timed { began, ended, before, after, locks }
}

impl Shared {
    /// Goes to the next phase unless a thread has stopped everything.
    fn advance(&self, from: usize, to: usize) {
        let _ = self.phase.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
    }

    fn read(&self) -> Vec<(u64, u64)> {
        let of = |counter: &CachePadded<Counter>| {
            (counter.ops.load(Ordering::Relaxed), counter.bytes.load(Ordering::Relaxed))
        };
        self.counters.iter().map(of).collect()
    }

    /// Waits for so long, or until something ends the run.
    fn wait(&self, orders: &Orders<'_>, limit: Duration, ended: impl Fn(&Self) -> bool) {
        let began = now();
        loop {
            let left = limit.saturating_sub(began.elapsed());
            if left.is_zero()
                || ended(self)
                || self.phase.load(Ordering::Acquire) == phase::STOP
                || (orders.interrupted)()
            {
                return;
            }
            thread::sleep(left.min(SLICE));
        }
    }
}

impl Timed {
    fn outcome<J: Job>(self, reports: Vec<Report>, shared: &Shared) -> Outcome {
        // Who ends by itself knows better when that was.
        let last = reports.iter().map(|report| report.stopped).max();
        let (after, ended) = match J::ENDS {
            Ends::ByTime => (self.after, self.ended),
            _ => (shared.read(), last.unwrap_or(self.ended)),
        };
        let per_thread = after.iter().zip(&self.before).map(|(after, before)| after.0 - before.0);
        let per_thread: Vec<u64> = per_thread.collect();
        let bytes = after.iter().zip(&self.before).map(|(after, before)| after.1 - before.1).sum();
        let mut latency = Sampler::new(0).into_histogram();
        let (mut left, mut failure) = (Vec::new(), None);
        for report in reports {
            latency.add(report.sampler.into_histogram()).expect("all have the same bounds");
            match report.left {
                Ok(one) => left.push(one),
                // A full disk is the least of what may have happened.
                Err(error) if failure.is_none() || error != OpError::Full => failure = Some(error),
                Err(_) => {}
            }
        }
        let (took, locks) = (ended.saturating_duration_since(self.began), self.locks);
        Outcome { took, per_thread, bytes, latency, left, failure, locks }
    }
}

pub(super) fn pinned(thread: usize) -> Result<(), OpError> {
    pin(thread).map_err(|error| OpError::Other(format!("pinning to a core: {error}").into()))
}
