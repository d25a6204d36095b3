//! Threads that work on one volume together and each on a volume of its own, in parts of a few
//! milliseconds.
//!
//! The cores of a virtual machine are moved some tens of times a second, and are faster or slower
//! for seconds: two figures that are compared are to be of the same hundredth of a second.
//!
//! The caller calls the parts by number and waits until all threads have seen each call, so nobody
//! misses one; who has no part in it waits awake, on its own core. Before a part that counts lies
//! one that does not, for caches that the other volume was in.

use super::crew::pinned;
use super::meeting::Meetings;
use super::rest::Rests;
use crate::target::{Done, OpError, Session, Target};
use crate::workload::{Ends, Job, Params, Seat, Step, Work};
use nextent_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use nextent_sync::{CachePadded, Duration, Instant, hint, now, thread};
use serde::{Deserialize, Serialize};

/// How long a part is that counts, and the one before.
const COUNTED: Duration = Duration::from_millis(3);
const SETTLING: Duration = Duration::from_micros(300);
/// From then on a part has taken so long because a thread was kept from its core, by something else
/// that ran there: of 40,000 parts on a machine with nothing beside them 98 in 100 took 3.23 ms at
/// most and one in 100 so long, and where a program ran beside them a fifth did, mostly 3.7 to 12.
const BROKEN_OFF: Duration = Duration::from_micros(3500);
/// How long the caller rests between two looks whether a call was seen.
const REST: Duration = Duration::from_micros(50);

/// What was done in one part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// How long.
    pub(crate) seconds: f64,
    /// Operations a second of all who worked.
    pub(crate) rate: f64,
}

impl Part {
    /// Whether who worked had their cores for themselves all the time.
    pub(super) fn is_whole(&self) -> bool {
        self.seconds < BROKEN_OFF.as_secs_f64()
    }
}

/// How far a thread was on one volume, in operations of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reach {
    /// When the first part began that counts.
    pub(crate) before: u64,
    /// At the end.
    pub(crate) after: u64,
}

/// The mean of all of `of` those.
pub(super) fn mean_reach(all: &[Notes], of: fn(&Notes) -> Reach) -> Reach {
    let mean = |part: fn(Reach) -> u64| {
        all.iter().map(|notes| part(of(notes))).sum::<u64>() / (all.len() as u64).max(1)
    };
    Reach { before: mean(|reach| reach.before), after: mean(|reach| reach.after) }
}

/// What a call asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// All work on the volume of all.
    Together,
    TogetherCounted,
    /// The same after a meeting of the first two.
    MetCounted,
    /// A meeting of the first two.
    Meet,
    /// One works on its own volume.
    Alone(usize),
    AloneCounted(usize),
    /// All work, each on its own volume.
    Apart,
    ApartCounted,
}

/// Where a thread works.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    OfAll,
    Own,
}

impl Call {
    fn lasts(self) -> Duration {
        match self {
            Self::Meet => Duration::ZERO,
            _ if self.counts() => COUNTED,
            _ => SETTLING,
        }
    }

    fn counts(self) -> bool {
        use Call::{AloneCounted, ApartCounted, MetCounted, TogetherCounted};
        matches!(self, TogetherCounted | MetCounted | AloneCounted(_) | ApartCounted)
    }

    /// Whether the first two meet before anything else.
    fn meets(self) -> bool {
        matches!(self, Self::Meet | Self::MetCounted)
    }

    /// Where `thread` works; nowhere if it waits.
    fn place(self, thread: usize) -> Option<Place> {
        match self {
            Self::Together | Self::TogetherCounted | Self::MetCounted => Some(Place::OfAll),
            Self::Meet => None,
            Self::Alone(one) | Self::AloneCounted(one) => (one == thread).then_some(Place::Own),
            Self::Apart | Self::ApartCounted => Some(Place::Own),
        }
    }
}

/// What caller and threads tell each other.
pub(super) struct Shared {
    /// What follows each other, again and again.
    calls: &'static [Call],
    threads: usize,
    /// Threads that are prepared. [sequentially consistent, as all of these]
    ready: AtomicUsize,
    /// The number of the last call, from 1; 0 before. [relaxed between operations]
    call: CachePadded<AtomicUsize>,
    /// How often a call was seen.
    seen: CachePadded<AtomicUsize>,
    meetings: Meetings,
    /// Who has nothing left to do: all, and each on its own volume.
    over: Vec<AtomicBool>,
    /// Whether one is gone, at the end or before.
    gone: AtomicBool,
}

/// No call: the end.
const END: usize = usize::MAX;

impl Shared {
    /// For so many threads, the first two of which may meet.
    pub(super) fn new(calls: &'static [Call], threads: usize) -> Self {
        Self {
            calls,
            threads,
            ready: AtomicUsize::default(),
            call: CachePadded::default(),
            seen: CachePadded::default(),
            meetings: Meetings::default(),
            over: (0..=threads).map(|_| AtomicBool::new(false)).collect(),
            gone: AtomicBool::new(false),
        }
    }

    /// Calls the parts until what all do together has taken `seconds`, or is over; how many calls
    /// there were.
    pub(super) fn conduct(&self, ends: Ends, warm_up: Duration, seconds: Duration) -> usize {
        self.wait(&self.ready, 1);
        // On both volumes.
        thread::sleep(warm_up * 2);
        let (mut number, mut worked) = (0, Duration::ZERO);
        let limit = if ends == Ends::ByTime { seconds } else { Duration::MAX };
        let over = || self.is_over(0) || self.is_gone();
        // What follows each other is not broken off but by who has nothing left to do.
        while !(over() || worked >= limit && number % self.calls.len() == 0) {
            let call = self.nth(number);
            number += 1;
            self.call.store(number, Ordering::SeqCst);
            self.wait(&self.seen, number);
            if self.is_wanted(call) {
                thread::sleep(call.lasts());
            }
            if call.counts() && call.place(0) == Some(Place::OfAll) {
                worked += COUNTED;
            }
        }
        self.call.store(END, Ordering::SeqCst);
        number
    }

    /// The `number`-th call, from 0.
    fn nth(&self, number: usize) -> Call {
        self.calls[number % self.calls.len()]
    }

    /// Waits until all threads have done something so many times.
    fn wait(&self, what: &AtomicUsize, times: usize) {
        while what.load(Ordering::SeqCst) < self.threads * times && !self.is_gone() {
            thread::sleep(REST);
        }
    }

    /// Whether anybody has anything left to do in it.
    fn is_wanted(&self, call: Call) -> bool {
        match call {
            Call::Alone(one) | Call::AloneCounted(one) => !self.is_over(1 + one),
            Call::Apart | Call::ApartCounted => !(1..=self.threads).all(|own| self.is_over(own)),
            _ => true,
        }
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    fn is_over(&self, at: usize) -> bool {
        self.over[at].load(Ordering::SeqCst)
    }
}

/// Says that a thread is gone when dropped.
pub(super) struct Gone<'a>(pub(super) &'a Shared);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.gone.store(true, Ordering::SeqCst);
    }
}

/// What a thread notes in a call that counts: its number, when it began and ended, operations, and
/// for one after a meeting what a turn took before and after.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) call: usize,
    pub(super) began: Instant,
    pub(super) ended: Instant,
    pub(super) ops: u64,
    pub(super) turns: [f64; 2],
}

impl Stamp {
    pub(super) fn seconds(&self) -> f64 {
        (self.ended - self.began).as_secs_f64().max(1e-9)
    }

    /// Operations a second.
    pub(super) fn rate(&self) -> f64 {
        self.ops as f64 / self.seconds()
    }
}

/// That of a call.
pub(super) fn find(stamps: &[Stamp], call: usize) -> Option<Stamp> {
    stamps.iter().find(|stamp| stamp.call == call).copied()
}

/// What a thread notes in all.
pub(super) struct Notes {
    pub(super) stamps: Vec<Stamp>,
    /// How far it was on the volume of all, and on its own.
    pub(super) together: Reach,
    pub(super) own: Reach,
}

/// A thread and what it works on.
pub(super) struct Member<'a, T> {
    pub(super) thread: usize,
    pub(super) core: usize,
    pub(super) shared: &'a Shared,
    /// What all work on, and what it has for itself.
    pub(super) targets: [&'a T; 2],
    pub(super) params: [&'a Params; 2],
    pub(super) warm_up: Duration,
}

impl<T: Target> Member<'_, T> {
    /// The thread's life.
    pub(super) fn live<J: Job>(&self) -> Done<Notes> {
        let Self { thread, shared, .. } = *self;
        pinned(self.core)?;
        let [of_all, own] = self.targets;
        let (of_all, own) = (of_all.session()?, own.session()?);
        let seat = |place: usize, thread, threads, session: &T::Session<'_>| {
            let params = self.params[place];
            Ok::<_, OpError>(Seat { thread, threads, space: session.space()?, params })
        };
        let together = J::Work::prepare(&of_all, &seat(0, thread, shared.threads, &of_all)?);
        shared.ready.fetch_add(1, Ordering::SeqCst);
        let mut together = Side::new(&of_all, together?, &shared.over[0], thread);
        let alone = J::Work::prepare(&own, &seat(1, 0, 1, &own)?)?;
        let mut alone = Side::new(&own, alone, &shared.over[1 + thread], thread);
        // Nothing is warmed up that ends: it would be over.
        if J::ENDS == Ends::ByTime {
            let began = now();
            while began.elapsed() < self.warm_up && shared.call.load(Ordering::Relaxed) == 0 {
                together.some()?;
            }
            while shared.call.load(Ordering::Relaxed) == 0 {
                alone.some()?;
            }
        }
        let stamps = self.follow(&mut together, &mut alone)?;
        let notes = Notes { stamps, together: together.reach(), own: alone.reach() };
        together.work.finish(&of_all)?;
        alone.work.finish(&own)?;
        Ok(notes)
    }

    /// Does its part in each call until the end.
    fn follow<'s, S: Session, W: Work<S>>(
        &self,
        together: &mut Side<'s, S, W>,
        own: &mut Side<'s, S, W>,
    ) -> Done<Vec<Stamp>> {
        let (shared, mut stamps) = (self.shared, Vec::<Stamp>::new());
        let (mut last, mut met) = (0, 0);
        loop {
            let number = self.next(last);
            if number == END {
                return Ok(stamps);
            }
            shared.seen.fetch_add(1, Ordering::SeqCst);
            last = number;
            let call = shared.nth(number - 1);
            let turn = if call.meets() { self.meet(met) } else { f64::INFINITY };
            met += usize::from(call.meets());
            if call == Call::Meet
                && let Some(stamp) = stamps.last_mut().filter(|stamp| stamp.call + 1 == number)
            {
                stamp.turns[1] = turn;
            }
            let place = call.place(self.thread);
            be_called(place);
            let began = now();
            let side = match place {
                Some(Place::OfAll) => &mut *together,
                Some(Place::Own) => &mut *own,
                None => continue,
            };
            if call.counts() {
                side.before.get_or_insert(side.done);
            }
            let ops = side.toil(number, &shared.call)?;
            if call.counts() {
                let turns = [turn, f64::INFINITY];
                stamps.push(Stamp { call: number, began, ended: now(), ops, turns });
            }
        }
    }

    /// Waits for the call after `last`.
    fn next(&self, last: usize) -> usize {
        loop {
            let number = self.shared.call.load(Ordering::Relaxed);
            if number != last {
                return number;
            }
            hint::spin_loop();
        }
    }

    /// Meets the other thread after so many meetings; nanoseconds of a turn.
    fn meet(&self, before: usize) -> f64 {
        let shared = self.shared;
        let gone = || shared.call.load(Ordering::SeqCst) == END || shared.is_gone();
        shared.meetings.attend(before, self.thread, gone).unwrap_or(f64::INFINITY)
    }
}

/// Names the thread by what it does, for profilers.
fn be_called(place: Option<Place>) {
    let name = match place {
        Some(Place::OfAll) => c"together",
        Some(Place::Own) => c"own",
        None => c"waits",
    };
    // What they are called changes nothing.
    let _ = rustix::thread::set_name(name);
}

/// A thread's work on one volume.
struct Side<'a, S: Session, W> {
    session: &'a S,
    work: W,
    over: &'a AtomicBool,
    /// Operations so far, and before the first part that counts.
    done: u64,
    before: Option<u64>,
    rests: Rests,
}

impl<'a, S: Session, W: Work<S>> Side<'a, S, W> {
    fn new(session: &'a S, work: W, over: &'a AtomicBool, thread: usize) -> Self {
        Self { session, work, over, done: 0, before: None, rests: Rests::new(thread) }
    }

    fn reach(&self) -> Reach {
        Reach { before: self.before.unwrap_or(self.done), after: self.done }
    }

    /// Operations while they warm up, between two looks at the clock.
    fn some(&mut self) -> Done<()> {
        for _ in 0..16 {
            self.work.step(self.session)?;
            self.rests.rest();
        }
        self.done += 16;
        Ok(())
    }

    /// Works until another call than `number` comes, or nothing is left to do; how many operations.
    #[inline(never)]
    fn toil(&mut self, number: usize, call: &AtomicUsize) -> Done<u64> {
        let mut ops = 0;
        while call.load(Ordering::Relaxed) == number {
            if self.work.step(self.session)? == Step::Over {
                self.over.store(true, Ordering::SeqCst);
                break;
            }
            ops += 1;
            self.rests.rest();
        }
        self.done += ops;
        Ok(ops)
    }
}
