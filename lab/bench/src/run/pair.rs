//! Two cores and one, in turns of a few milliseconds: both threads on one volume, then each of them
//! alone on a volume of its own while the other waits.
//!
//! Before and after each part of both the two change a word in turns, which tells how near to each
//! other their cores were.

use super::calls::{Call, Gone, Member, Notes, Part, Reach, Shared, Stamp, find, mean_reach};
use super::cell::COMMIT;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::target::{Done, Engine, Image, OpError, Target};
use crate::workload::{self, Chosen, Job, Params};
use nextent_sync::{Duration, thread};
use serde::{Deserialize, Deserializer, Serialize};

/// Threads, and the cores that they are on.
const THREADS: usize = 2;

/// Parts that followed each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cycle {
    /// Both on one volume; how long in the mean of them.
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
        self.alone.iter().flatten().chain([&self.both]).all(Part::is_whole)
    }
}

/// JSON has no infinity, which is written as `null`.
fn finite_or_not<'de, D: Deserializer<'de>>(from: D) -> Result<[f64; 2], D::Error> {
    let turns = <[Option<f64>; 2]>::deserialize(from)?;
    Ok(turns.map(|turn| turn.unwrap_or(f64::INFINITY)))
}

/// What both threads did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Pair {
    pub(crate) cycles: Vec<Cycle>,
    /// How far they were on the volume of both, in the mean, and on one of their own.
    pub(crate) together: Reach,
    pub(crate) alone: Reach,
}

/// What follows each other.
const CALLS: [Call; 7] = [
    Call::Together,
    Call::MetCounted,
    Call::Meet,
    Call::Alone(0),
    Call::AloneCounted(0),
    Call::Alone(1),
    Call::AloneCounted(1),
];

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
        let shared = Shared::new(&CALLS, THREADS);
        thread::scope(|scope| {
            let (run, shared) = (&self, &shared);
            let member = |thread: usize| {
                scope.spawn(move || {
                    let _gone = Gone(shared);
                    let targets = [&run.targets[0], &run.targets[1 + thread]];
                    let (params, warm_up) = (run.params, run.warm_up);
                    let core = thread;
                    Member { thread, core, shared, targets, params, warm_up }.live::<J>()
                })
            };
            let members = [member(0), member(1)];
            let calls = shared.conduct(J::ENDS, self.warm_up, self.seconds);
            let lost = |_| OpError::Other("a thread panicked".into());
            let notes = members.into_iter().map(|member| member.join().map_err(lost)?);
            let notes: Vec<Notes> = notes.collect::<Done<_>>()?;
            Ok(Pair {
                cycles: cycles(&notes[0].stamps, &notes[1].stamps, calls),
                together: mean_reach(&notes, |notes| notes.together),
                alone: mean_reach(&notes, |notes| notes.own),
            })
        })
    }
}

/// What both threads noted, as cycles.
fn cycles(one: &[Stamp], other: &[Stamp], calls: usize) -> Vec<Cycle> {
    let part = |stamps: &[Stamp]| Part {
        seconds: stamps.iter().map(Stamp::seconds).sum::<f64>() / stamps.len() as f64,
        rate: stamps.iter().map(Stamp::rate).sum(),
    };
    let cycle = |first: usize| {
        let both = [find(one, first + 2)?, find(other, first + 2)?];
        let turns = [0, 1].map(|at| (both[0].turns[at] + both[1].turns[at]) / 2.0);
        let alone = [(one, first + 5), (other, first + 7)].map(|(of, call)| {
            find(of, call).filter(|stamp| stamp.ops > 0).map(|stamp| part(&[stamp]))
        });
        Some(Cycle { both: part(&both), turns, alone })
    };
    (0..calls).step_by(CALLS.len()).filter_map(cycle).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nextent_sync::now;

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
