//! Two cores and one, in turns of a few milliseconds: both threads on one volume, then each of them
//! alone on a volume of its own while the other waits.
//!
//! The cores of a virtual machine are moved some tens of times a second, and are faster or slower
//! for seconds: two figures that are compared are to be of the same hundredth of a second. Before
//! and after each part of both the two change a word in turns, which tells how near to each other
//! their cores were.
//!
//! The caller calls the parts by number and waits until both threads have seen each call, so
//! nobody misses one; who has no part in it waits awake, on its own core. Before a part that counts
//! lies one that does not, for caches that the other volume was in.

use super::cell::COMMIT;
use super::crew::pinned;
use super::meeting::Meetings;
use super::rest::Rests;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::target::{Done, Engine, Image, OpError, Target};
use crate::workload::{self, Chosen, Ends, Job, Params, Seat, Step, Work};
use nextent_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use nextent_sync::{CachePadded, Duration, Instant, hint, now, thread};
use serde::{Deserialize, Deserializer, Serialize};

/// Threads, and the cores that they are on.
const THREADS: usize = 2;
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
    /// How long, in the mean of those who worked.
    pub(crate) seconds: f64,
    /// Operations a second of all who worked.
    pub(crate) rate: f64,
}

/// Parts that followed each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cycle {
    /// Both on one volume.
    pub(crate) both: Part,
    /// Nanoseconds of a turn, before and after; infinitely many where a meeting was broken off.
    #[serde(deserialize_with = "finite_or_not")]
    pub(crate) turns: [f64; 2],
    /// Each alone; none for who had nothing left to do.
    pub(crate) alone: [Option<Part>; THREADS],
}

impl Cycle {
    /// Whether all who worked had their cores for themselves all the time.
    pub(crate) fn is_whole(&self) -> bool {
        let parts = self.alone.iter().flatten().chain([&self.both]);
        parts.map(|part| part.seconds).all(|seconds| seconds < BROKEN_OFF.as_secs_f64())
    }
}

/// JSON has no infinity, which is written as `null`.
fn finite_or_not<'de, D: Deserializer<'de>>(from: D) -> Result<[f64; 2], D::Error> {
    let turns = <[Option<f64>; 2]>::deserialize(from)?;
    Ok(turns.map(|turn| turn.unwrap_or(f64::INFINITY)))
}

/// How far a thread was on one volume, in operations of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reach {
    /// When the first part began that counts.
    pub(crate) before: u64,
    /// At the end.
    pub(crate) after: u64,
}

/// What both threads did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Pair {
    pub(crate) cycles: Vec<Cycle>,
    /// How far they were on the volume of both, in the mean, and on one of their own.
    pub(crate) together: Reach,
    pub(crate) alone: Reach,
}

/// What a call asks for, by its number: seven follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Both,
    /// After a meeting.
    BothCounted,
    /// A meeting.
    Meet,
    Alone(usize),
    AloneCounted(usize),
}

impl Call {
    const ALL: [Self; 7] = [
        Self::Both,
        Self::BothCounted,
        Self::Meet,
        Self::Alone(0),
        Self::AloneCounted(0),
        Self::Alone(1),
        Self::AloneCounted(1),
    ];

    fn of(number: usize) -> Self {
        Self::ALL[number % Self::ALL.len()]
    }

    fn lasts(self) -> Duration {
        match self {
            Self::Meet => Duration::ZERO,
            Self::Both | Self::Alone(_) => SETTLING,
            Self::BothCounted | Self::AloneCounted(_) => COUNTED,
        }
    }
}

/// Runs the one design of both plans, `both` with two threads and `alone` with one, until `both`
/// has had the time that was asked for, or is over.
///
/// # Errors
/// Whatever an operation says, and what a check of the three images finds.
pub(crate) fn pair(both: &Plan, alone: &Plan) -> Result<Pair, Failure> {
    let plans = [both, alone, alone];
    let mut places = Vec::new();
    for plan in plans {
        let image = Image::get(&plan.wanted())?;
        let volume = image.open(plan.columns[0].design.unwrap_or_default(), COMMIT)?;
        places.push((image, volume));
    }
    let engine = |at: usize| Engine::in_own_directory(&places[at].1);
    let targets = [engine(0)?, engine(1)?, engine(2)?];
    let warm_up = both.warm_up(both.seconds);
    let params = [&both.params, &alone.params];
    let run = Run { targets: &targets, params, warm_up, seconds: both.seconds };
    let found = workload::choose(both.workload, run).map_err(|error| {
        Failure::broken(format!("{} on {}: {error}", both.workload.name(), both.columns[0].label))
    });
    for (image, volume) in places {
        volume.close().map_err(|error| Failure::broken(format!("close: {error}")))?;
        drop(volume);
        image.checked(&both.columns[0].label)?;
    }
    found
}

struct Run<'a, T> {
    targets: &'a [T; 1 + THREADS],
    params: [&'a Params; 2],
    warm_up: Duration,
    seconds: Duration,
}

impl<T: Target> Chosen for Run<'_, T> {
    type Out = Done<Pair>;

    fn with<J: Job>(self) -> Self::Out {
        let shared = Shared::default();
        thread::scope(|scope| {
            let (run, shared) = (&self, &shared);
            let member = |thread| {
                scope.spawn(move || {
                    let _gone = Gone(&shared.gone);
                    run.member::<J>(thread, shared)
                })
            };
            let members = [member(0), member(1)];
            let calls = run.conduct::<J>(shared);
            let mut notes = Vec::new();
            for member in members {
                let lost = |_| OpError::Other("a thread panicked".into());
                notes.push(member.join().map_err(lost)??);
            }
            Ok(Pair {
                cycles: cycles(&notes[0].stamps, &notes[1].stamps, calls),
                together: mean(notes[0].together, notes[1].together),
                alone: mean(notes[0].alone, notes[1].alone),
            })
        })
    }
}

/// What the three threads tell each other.
#[derive(Default)]
struct Shared {
    /// Threads that are prepared. [sequentially consistent, as all of these]
    ready: AtomicUsize,
    /// The number of the last call, from 1; 0 before. [relaxed between operations]
    call: CachePadded<AtomicUsize>,
    /// How often a call was seen.
    seen: CachePadded<AtomicUsize>,
    meetings: Meetings,
    /// Who has nothing left to do: both, and each alone.
    over: [AtomicBool; 1 + THREADS],
    /// Whether one is gone, at the end or before.
    gone: AtomicBool,
}

/// Says so when dropped.
struct Gone<'a>(&'a AtomicBool);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// No call: the end.
const END: usize = usize::MAX;

impl Shared {
    fn call(&self, number: usize) {
        self.call.store(number, Ordering::SeqCst);
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    fn is_over(&self, at: usize) -> bool {
        self.over[at].load(Ordering::SeqCst)
    }
}

/// What a thread notes in a call that counts: its number, when it began and ended, operations, and
/// for one of both what a turn took before and after.
#[derive(Clone, Copy, Debug)]
struct Stamp {
    call: usize,
    began: Instant,
    ended: Instant,
    ops: u64,
    turns: [f64; 2],
}

/// What a thread notes in all.
struct Notes {
    stamps: Vec<Stamp>,
    together: Reach,
    alone: Reach,
}

impl<T: Target> Run<'_, T> {
    /// Calls the parts; how many calls there were.
    fn conduct<J: Job>(&self, shared: &Shared) -> usize {
        let wait = |all: &AtomicUsize, enough: usize| {
            while all.load(Ordering::SeqCst) < enough && !shared.is_gone() {
                thread::sleep(REST);
            }
        };
        wait(&shared.ready, THREADS);
        thread::sleep(self.warm_up * THREADS as u32);
        let (mut number, mut worked) = (0, Duration::ZERO);
        let limit = if J::ENDS == Ends::ByTime { self.seconds } else { Duration::MAX };
        let over = || shared.is_over(0) || shared.is_gone();
        // A cycle is not broken off but by who has nothing left to do.
        while !(over() || worked >= limit && number % Call::ALL.len() == 0) {
            let call = Call::of(number);
            number += 1;
            shared.call(number);
            wait(&shared.seen, THREADS * number);
            if !matches!(call, Call::Alone(n) | Call::AloneCounted(n) if shared.is_over(1 + n)) {
                thread::sleep(call.lasts());
            }
            if call == Call::BothCounted {
                worked += COUNTED;
            }
        }
        shared.call(END);
        number
    }

    /// One thread's life: on core `thread`.
    fn member<J: Job>(&self, thread: usize, shared: &Shared) -> Done<Notes> {
        pinned(thread)?;
        let target = &self.targets[1 + thread];
        let (both, alone) = (self.targets[0].session()?, target.session()?);
        let seat = |place: usize, thread, threads, session: &T::Session<'_>| {
            use crate::target::Session;
            Ok::<_, OpError>(Seat {
                thread,
                threads,
                space: session.space()?,
                params: self.params[place],
            })
        };
        let together = J::Work::prepare(&both, &seat(0, thread, THREADS, &both)?);
        shared.ready.fetch_add(1, Ordering::SeqCst);
        let mut together = Side::new(&both, together?, &shared.over[0], thread);
        let own = J::Work::prepare(&alone, &seat(1, 0, 1, &alone)?)?;
        let mut own = Side::new(&alone, own, &shared.over[1 + thread], thread);
        // Nothing is warmed up that ends: it would be over.
        if J::ENDS == Ends::ByTime {
            let began = now();
            while began.elapsed() < self.warm_up && shared.call.load(Ordering::Relaxed) == 0 {
                together.some()?;
            }
            while shared.call.load(Ordering::Relaxed) == 0 {
                own.some()?;
            }
        }
        let stamps = Member { thread, shared }.follow(&mut together, &mut own)?;
        let notes = Notes { stamps, together: together.reach(), alone: own.reach() };
        together.work.finish(&both)?;
        own.work.finish(&alone)?;
        Ok(notes)
    }
}

/// A thread's work on one volume.
struct Side<'a, S: crate::target::Session, W> {
    session: &'a S,
    work: W,
    over: &'a AtomicBool,
    /// Operations so far, and before the first part that counts.
    done: u64,
    before: Option<u64>,
    rests: Rests,
}

impl<'a, S: crate::target::Session, W: Work<S>> Side<'a, S, W> {
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

struct Member<'a> {
    thread: usize,
    shared: &'a Shared,
}

impl Member<'_> {
    /// Does its part in each call until the end.
    fn follow<'s, S: crate::target::Session, W: Work<S>>(
        &self,
        both: &mut Side<'s, S, W>,
        own: &mut Side<'s, S, W>,
    ) -> Done<Vec<Stamp>> {
        let (shared, mut stamps, mut last) = (self.shared, Vec::<Stamp>::new(), 0);
        loop {
            let number = self.next(last);
            if number == END {
                return Ok(stamps);
            }
            shared.seen.fetch_add(1, Ordering::SeqCst);
            last = number;
            let call = Call::of(number - 1);
            let turn = match call {
                Call::BothCounted | Call::Meet => self.meet(number),
                _ => f64::INFINITY,
            };
            if call == Call::Meet
                && let Some(stamp) = stamps.last_mut().filter(|stamp| stamp.call + 1 == number)
            {
                stamp.turns[1] = turn;
            }
            self.be_called(call);
            let began = now();
            let side = match call {
                Call::Both | Call::BothCounted => &mut *both,
                Call::Alone(one) | Call::AloneCounted(one) if one == self.thread => &mut *own,
                _ => continue,
            };
            let counts = matches!(call, Call::BothCounted | Call::AloneCounted(_));
            if counts {
                side.before.get_or_insert(side.done);
            }
            let ops = side.toil(number, &shared.call)?;
            if counts {
                let turns = [turn, f64::INFINITY];
                stamps.push(Stamp { call: number, began, ended: now(), ops, turns });
            }
        }
    }

    /// Names the thread by what it does, for profilers.
    fn be_called(&self, call: Call) {
        let name = match call {
            Call::Both | Call::BothCounted => c"both",
            Call::Alone(one) | Call::AloneCounted(one) if one == self.thread => c"alone",
            _ => c"waits",
        };
        // What they are called changes nothing.
        let _ = rustix::thread::set_name(name);
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

    /// Meets the other thread; nanoseconds of a turn.
    fn meet(&self, number: usize) -> f64 {
        // Two meetings of seven calls.
        let cycle = (number - 1) / Call::ALL.len();
        let which = 2 * cycle + usize::from(Call::of(number - 1) == Call::Meet);
        let gone = || {
            let call = self.shared.call.load(Ordering::SeqCst);
            call == END || self.shared.is_gone()
        };
        self.shared.meetings.attend(which, self.thread, gone).unwrap_or(f64::INFINITY)
    }
}

fn mean(one: Reach, other: Reach) -> Reach {
    let of = |part: fn(Reach) -> u64| u64::midpoint(part(one), part(other));
    Reach { before: of(|reach| reach.before), after: of(|reach| reach.after) }
}

/// What both threads noted, as cycles.
fn cycles(one: &[Stamp], other: &[Stamp], calls: usize) -> Vec<Cycle> {
    let find = |of: &[Stamp], call: usize| of.iter().find(|stamp| stamp.call == call).copied();
    let part = |stamps: &[Stamp]| {
        let seconds = |stamp: &Stamp| (stamp.ended - stamp.began).as_secs_f64().max(1e-9);
        Part {
            seconds: stamps.iter().map(seconds).sum::<f64>() / stamps.len() as f64,
            rate: stamps.iter().map(|stamp| stamp.ops as f64 / seconds(stamp)).sum(),
        }
    };
    let cycle = |first: usize| {
        let both = [find(one, first + 2)?, find(other, first + 2)?];
        let turns = [0, 1].map(|at| (both[0].turns[at] + both[1].turns[at]) / 2.0);
        let alone = [(one, first + 5), (other, first + 7)].map(|(of, call)| {
            find(of, call).filter(|stamp| stamp.ops > 0).map(|stamp| part(&[stamp]))
        });
        Some(Cycle { both: part(&both), turns, alone })
    };
    (0..calls).step_by(Call::ALL.len()).filter_map(cycle).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_threads_note_becomes_cycles() {
        let start = now();
        let at = |call: usize| start + Duration::from_millis(3 * call as u64);
        let stamp = |call, ops, turns| {
            let (began, ended) = (at(call), at(call) + Duration::from_millis(2));
            Stamp { call, began, ended, ops, turns }
        };
        let none = [f64::INFINITY; 2];
        let one = [
            stamp(2, 2000, [20.0, 30.0]),
            stamp(5, 4000, none),
            stamp(9, 1000, [20.0, 90.0]),
            // Nothing was left to do.
            stamp(12, 0, none),
        ];
        let other = [stamp(2, 4000, [22.0, 30.0]), stamp(7, 6000, none), stamp(9, 1000, none)];
        let found = cycles(&one, &other, 12);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].both.rate.round(), found[0].turns), (3_000_000.0, [21.0, 30.0]));
        let alone = found[0].alone.map(|part| part.expect("it worked").rate.round());
        assert_eq!(alone, [2_000_000.0, 3_000_000.0]);
        assert_eq!((found[1].alone, found[1].turns), ([None; 2], [f64::INFINITY; 2]));
        assert!((found[1].both.seconds / 0.002 - 1.0).abs() < 1e-6);
        assert!(found.iter().all(Cycle::is_whole));
        let slow = Part { seconds: 0.0042, rate: 1.0 };
        assert!(!Cycle { both: slow, ..found[1] }.is_whole());
        assert!(!Cycle { alone: [None, Some(slow)], ..found[1] }.is_whole());
        assert_eq!(cycles(&one, &[], 12), []);
    }
}
