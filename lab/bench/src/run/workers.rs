//! The worker threads of one run.
//!
//! Invariant: while the clock runs, workers share only the phase, which they read and which does
//! not change. Each counts its operations on cache lines of its own.
//!
//! | phase | workers | caller |
//! |---|---|---|
//! | `GATHER` | prepare, then wait | waits until all are prepared |
//! | `WARM`, only in workloads that end by time | work | waits for the warm-up, then reads all counters and the clock |
//! | `TIMED` | work | waits for the time, then reads all counters and the clock |
//! | `STOP` | finish | adds up the figures |
//!
//! A worker that fails sets `STOP`, and so does the first that has no operation left in a workload
//! that ends with it.

use super::latency::Sampler;
use super::pin::pin;
use crate::target::{OpError, Target};
use crate::workload::{EndFigures, Ends, Job, Params, Step, Work, WorkerContext};
use hdrhistogram::Histogram;
use nextent_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use nextent_sync::stats::{self, ClassStats};
use nextent_sync::{CachePadded, Duration, Instant, now, thread};

/// Interval at which the caller checks the clock and for an interrupt.
const SLICE: Duration = Duration::from_millis(5);

/// Phases of a run. [stored with release, loaded with acquire]
mod phase {
    pub(super) const GATHER: usize = 0;
    pub(super) const WARM: usize = 1;
    pub(super) const TIMED: usize = 2;
    pub(super) const STOP: usize = 3;
}

/// The options of a run.
#[derive(Clone, Copy)]
pub(crate) struct RunOptions<'a> {
    pub(crate) threads: usize,
    pub(crate) seconds: Duration,
    /// Warm-up before that.
    pub(crate) warm_up: Duration,
    /// Pin each worker to a core of its own, from this one of the usable cores on.
    pub(crate) pin: Option<usize>,
    /// Count locks and shared stores while the clock runs, for so many operations or `seconds`.
    pub(crate) counted: Option<u64>,
    pub(crate) params: &'a Params,
    /// Whether the user wants to stop.
    pub(crate) interrupted: &'a (dyn Fn() -> bool + Sync),
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) took: Duration,
    /// Operations of each thread.
    pub(crate) per_thread: Vec<u64>,
    /// Bytes read and written.
    pub(crate) bytes: u64,
    pub(crate) latency: Histogram<u64>,
    pub(crate) figures: Vec<EndFigures>,
    /// The error that ended the run early.
    pub(crate) failure: Option<OpError>,
    pub(crate) locks: Vec<ClassStats>,
}

/// The counters of one worker.
#[derive(Default)]
struct Counter {
    /// Operations since the start. [relaxed: only its worker stores]
    ops: AtomicU64,
    /// Bytes since the start. [relaxed, as above]
    bytes: AtomicU64,
}

struct Shared {
    phase: AtomicUsize,
    /// Workers that are prepared.
    ready: AtomicUsize,
    /// Workers that have no operation left.
    over: AtomicUsize,
    counters: Vec<CachePadded<Counter>>,
}

/// What a worker returns.
struct Report {
    sampler: Sampler,
    stopped: Instant,
    figures: Result<EndFigures, OpError>,
}

/// Runs a workload on a target.
pub(crate) fn run<J: Job, T: Target>(
    target: &T,
    options: &RunOptions<'_>,
) -> Result<Outcome, OpError> {
    let space = {
        use crate::target::Session;
        target.session()?.space()?
    };
    let RunOptions { params, .. } = *options;
    let threads = options.threads;
    let counters = std::iter::repeat_with(CachePadded::default).take(threads).collect();
    let shared = Shared {
        phase: AtomicUsize::new(phase::GATHER),
        ready: AtomicUsize::new(0),
        over: AtomicUsize::new(0),
        counters,
    };
    thread::scope(|scope| {
        let shared = &shared;
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let context = WorkerContext { thread, threads, space, params };
                scope.spawn(move || {
                    let core = options.pin.map(|first| first + thread);
                    worker::<J, T>(target, &context, shared, core)
                })
            })
            .collect();
        let timed = keep_time::<J>(shared, options);
        let reports = workers.into_iter().map(|worker| worker.join());
        let reports: Result<Vec<Report>, _> = reports.collect();
        let reports = reports.map_err(|_| OpError::Other("a thread panicked".into()))?;
        Ok(timed.outcome::<J>(reports, shared))
    })
}

/// Runs one worker.
fn worker<J: Job, T: Target>(
    target: &T,
    context: &WorkerContext<'_>,
    shared: &Shared,
    core: Option<usize>,
) -> Report {
    let mut sampler = Sampler::new(context.thread);
    let prepared = core.map_or(Ok(()), pinned).and_then(|()| {
        let session = target.session()?;
        let work = J::Work::prepare(&session, context)?;
        Ok((session, work))
    });
    shared.ready.fetch_add(1, Ordering::AcqRel);
    let worked = prepared.and_then(|(session, mut work)| {
        while shared.phase.load(Ordering::Acquire) == phase::GATHER {
            thread::yield_now();
        }
        let done = work_until_stop(&session, &mut work, context.thread, shared, &mut sampler);
        let stopped = now();
        if J::ENDS == Ends::WithFirst || done.is_err() {
            shared.phase.store(phase::STOP, Ordering::Release);
        }
        shared.over.fetch_add(1, Ordering::AcqRel);
        done?;
        Ok((stopped, work, session))
    });
    match worked {
        Ok((stopped, work, session)) => Report { sampler, stopped, figures: work.finish(&session) },
        Err(error) => {
            shared.phase.store(phase::STOP, Ordering::Release);
            Report { sampler, stopped: now(), figures: Err(error) }
        }
    }
}

/// Runs operations until the phase is `STOP` or no operation is left.
fn work_until_stop<S: crate::target::Session, W: Work<S>>(
    session: &S,
    work: &mut W,
    thread: usize,
    shared: &Shared,
    sampler: &mut Sampler,
) -> Result<(), OpError> {
    let counter = &*shared.counters[thread];
    let (mut ops, mut bytes, mut last_phase) = (0, 0, phase::WARM);
    loop {
        let phase = shared.phase.load(Ordering::Relaxed);
        if phase != last_phase {
            if phase == phase::STOP {
                return Ok(());
            }
            last_phase = phase;
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
        ops += 1;
        counter.ops.store(ops, Ordering::Relaxed);
        if moved > 0 {
            bytes += moved;
            counter.bytes.store(bytes, Ordering::Relaxed);
        }
    }
}

/// The clock and the counters of the timed phase.
struct Timed {
    began: Instant,
    ended: Instant,
    /// Operations and bytes of each worker at the start.
    before: Vec<(u64, u64)>,
    after: Vec<(u64, u64)>,
    locks: Vec<ClassStats>,
}

/// Steps through the phases and reads clock and counters.
fn keep_time<J: Job>(shared: &Shared, options: &RunOptions<'_>) -> Timed {
    while shared.ready.load(Ordering::Acquire) < options.threads {
        thread::sleep(Duration::from_micros(200));
    }
    let finite = J::ENDS != Ends::ByTime;
    if !finite {
        shared.advance(phase::GATHER, phase::WARM);
        shared.wait(options, options.warm_up, |_| false);
    }
    if options.counted.is_some() {
        stats::reset();
        stats::enable();
    }
    let before = shared.read();
    let began = now();
    shared.advance(if finite { phase::GATHER } else { phase::WARM }, phase::TIMED);
    let sum = |counts: &[(u64, u64)]| counts.iter().map(|(ops, _)| ops).sum::<u64>();
    let start = sum(&before);
    let enough = options.counted.unwrap_or(u64::MAX);
    let limit = if J::ENDS == Ends::WithLast { Duration::MAX } else { options.seconds };
    let counting = options.counted.is_some();
    shared.wait(options, limit, |shared| {
        let all = shared.over.load(Ordering::Acquire) == options.threads;
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
    /// Goes to the next phase unless a worker has set `STOP`.
    fn advance(&self, from: usize, to: usize) {
        let _ = self.phase.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
    }

    fn read(&self) -> Vec<(u64, u64)> {
        let of = |counter: &CachePadded<Counter>| {
            (counter.ops.load(Ordering::Relaxed), counter.bytes.load(Ordering::Relaxed))
        };
        self.counters.iter().map(of).collect()
    }

    /// Waits for so long, or until the run ends.
    fn wait(&self, options: &RunOptions<'_>, limit: Duration, ended: impl Fn(&Self) -> bool) {
        let began = now();
        loop {
            let left = limit.saturating_sub(began.elapsed());
            if left.is_zero()
                || ended(self)
                || self.phase.load(Ordering::Acquire) == phase::STOP
                || (options.interrupted)()
            {
                return;
            }
            thread::sleep(left.min(SLICE));
        }
    }
}

impl Timed {
    fn outcome<J: Job>(self, reports: Vec<Report>, shared: &Shared) -> Outcome {
        // A worker that ends by itself notes the time, without the interval of the caller's checks.
        let last = reports.iter().map(|report| report.stopped).max();
        let (after, ended) = match J::ENDS {
            Ends::ByTime => (self.after, self.ended),
            _ => (shared.read(), last.unwrap_or(self.ended)),
        };
        let per_thread = after.iter().zip(&self.before).map(|(after, before)| after.0 - before.0);
        let per_thread: Vec<u64> = per_thread.collect();
        let bytes = after.iter().zip(&self.before).map(|(after, before)| after.1 - before.1).sum();
        let mut latency = Sampler::new(0).into_histogram();
        let (mut figures, mut failure) = (Vec::new(), None);
        for report in reports {
            latency.add(report.sampler.into_histogram()).expect("all have the same bounds");
            match report.figures {
                Ok(one) => figures.push(one),
                // Another error says more than a full volume.
                Err(error) if failure.is_none() || error != OpError::Full => failure = Some(error),
                Err(_) => {}
            }
        }
        let (took, locks) = (ended.saturating_duration_since(self.began), self.locks);
        Outcome { took, per_thread, bytes, latency, figures, failure, locks }
    }
}

/// Pins the calling thread.
pub(super) fn pinned(thread: usize) -> Result<(), OpError> {
    pin(thread).map_err(|error| OpError::Other(format!("pinning to a core: {error}").into()))
}
