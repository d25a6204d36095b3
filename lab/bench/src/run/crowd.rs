//! Many cores, in turns of a few milliseconds: all threads on one volume, then each on a volume of
//! its own, all at once.
//!
//! So what the machine takes from cores that are all busy is in both: halves of cores that they
//! share with each other, a clock that is slower, the way to memory. What is left is what they take
//! from each other.

use super::calls::{Call, Gone, Member, Notes, Part, Reach, Shared, Stamp, find, mean_reach};
use super::cell::COMMIT;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::target::{Done, Engine, Image, OpError};
use crate::workload::{self, Chosen, Job};
use nextent::Volume;
use nextent_sync::thread;
use serde::{Deserialize, Serialize};

/// Parts that followed each other; each took as long as for the last of those who worked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bout {
    /// All on one volume.
    pub(crate) together: Part,
    /// Each on its own; none if one had nothing left to do.
    pub(crate) apart: Option<Part>,
}

/// What all threads did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Crowd {
    pub(crate) bouts: Vec<Bout>,
    /// How far they were on the volume of all, in the mean, and on one of their own.
    pub(crate) together: Reach,
    pub(crate) apart: Reach,
}

/// What follows each other.
const CALLS: [Call; 4] = [Call::Together, Call::TogetherCounted, Call::Apart, Call::ApartCounted];

/// Runs the one design of both plans, `together` with so many threads on cores from `first` on, and
/// `apart` with one on an image for each of them, until `together` has had the time that was asked
/// for, or is over.
///
/// # Errors
/// Whatever an operation says, and what a check of the images finds.
pub(crate) fn crowd(
    together: &Plan,
    apart: &Plan,
    first: usize,
    threads: usize,
) -> Result<Crowd, Failure> {
    on(together, |volume| {
        let target = Engine::in_own_directory(volume)?;
        let run = Run { target: &target, together, apart, first, threads };
        workload::choose(together.workload, run)
    })
}

/// Does something on a fresh image of that plan, which is checked after.
fn on<R>(plan: &Plan, run: impl FnOnce(&Volume) -> Result<R, Failure>) -> Result<R, Failure> {
    let column = &plan.columns[0];
    let image = Image::get(&plan.wanted())?;
    let volume = image.open(column.design.unwrap_or_default(), COMMIT)?;
    let found = run(&volume)?;
    volume.close().map_err(|error| Failure::broken(format!("close: {error}")))?;
    drop(volume);
    image.checked(&column.label)?;
    Ok(found)
}

struct Run<'a, 'v> {
    target: &'a Engine<'v>,
    together: &'a Plan,
    apart: &'a Plan,
    first: usize,
    threads: usize,
}

impl Chosen for Run<'_, '_> {
    type Out = Result<Crowd, Failure>;

    fn with<J: Job>(self) -> Self::Out {
        let Self { together, threads, .. } = self;
        let shared = Shared::new(&CALLS, threads);
        thread::scope(|scope| {
            let (run, shared) = (&self, &shared);
            let member = |thread| {
                scope.spawn(move || {
                    let _gone = Gone(shared);
                    // Its image is made before the thread stays on a core, for what a volume does
                    // aside may be done on any.
                    on(run.apart, |volume| run.member::<J>(thread, shared, volume))
                })
            };
            let members: Vec<_> = (0..threads).map(member).collect();
            let warm_up = together.warm_up(together.seconds);
            let calls = shared.conduct(J::ENDS, warm_up, together.seconds);
            let lost = |_| Failure::broken("a thread panicked".to_owned());
            let notes = members.into_iter().map(|member| member.join().map_err(lost)?);
            let notes: Vec<Notes> = notes.collect::<Result<_, _>>()?;
            Ok(Crowd {
                bouts: bouts(&notes, calls),
                together: mean_reach(&notes, |notes| notes.together),
                apart: mean_reach(&notes, |notes| notes.own),
            })
        })
    }
}

impl Run<'_, '_> {
    /// One thread's life, with a volume of its own.
    fn member<J: Job>(
        &self,
        thread: usize,
        shared: &Shared,
        own: &Volume,
    ) -> Result<Notes, Failure> {
        let own = Engine::in_own_directory(own)?;
        let Self { target, together, apart, .. } = *self;
        let member = Member {
            thread,
            core: self.first + thread,
            shared,
            targets: [target, &own],
            params: [&together.params, &apart.params],
            warm_up: together.warm_up(together.seconds),
        };
        let broken = |error: OpError| {
            let (workload, column) = (together.workload.name(), &together.columns[0].label);
            Failure::broken(format!("{workload} on {column}: {error}"))
        };
        let lived: Done<Notes> = member.live::<J>();
        lived.map_err(broken)
    }
}

/// What all threads noted, part by part.
fn bouts(notes: &[Notes], calls: usize) -> Vec<Bout> {
    let part = |call: usize| {
        let stamps = notes.iter().map(|notes| find(&notes.stamps, call));
        let stamps: Vec<Stamp> = stamps.collect::<Option<_>>()?;
        stamps.iter().all(|stamp| stamp.ops > 0).then(|| Part {
            seconds: stamps.iter().map(Stamp::seconds).fold(0.0, f64::max),
            rate: stamps.iter().map(Stamp::rate).sum(),
        })
    };
    let bout = |first: usize| Some(Bout { together: part(first + 2)?, apart: part(first + 4) });
    (0..calls).step_by(CALLS.len()).filter_map(bout).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nextent_sync::{Duration, now};

    #[test]
    fn what_all_note_becomes_bouts() {
        let start = now();
        let stamp = |call: usize, ops, ms| {
            let began = start + Duration::from_millis(4 * call as u64);
            let ended = began + Duration::from_millis(ms);
            Stamp { call, began, ended, ops, turns: [f64::INFINITY; 2] }
        };
        let notes = |stamps: &[Stamp]| Notes {
            stamps: stamps.to_vec(),
            together: Reach::default(),
            own: Reach::default(),
        };
        let all = [
            notes(&[stamp(2, 3000, 3), stamp(4, 9000, 3), stamp(6, 3000, 3), stamp(8, 0, 1)]),
            notes(&[stamp(2, 1000, 1), stamp(4, 6000, 3), stamp(6, 3000, 4), stamp(8, 9, 3)]),
            notes(&[stamp(2, 6000, 3), stamp(4, 3000, 3), stamp(6, 3000, 3), stamp(8, 9, 3)]),
        ];
        let found = bouts(&all, 10);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].together.rate.round(), 4_000_000.0);
        let apart = found[0].apart.expect("all worked");
        assert_eq!(apart.rate.round(), 6_000_000.0);
        // One ended later, and one had nothing left to do.
        assert!((found[1].together.seconds / 0.004 - 1.0).abs() < 1e-6);
        assert!(found[1].apart.is_none());
        // Who is not through with a part has no figure of it.
        assert_eq!(bouts(&[notes(&[]), notes(&[stamp(2, 1, 3)])], 4), []);
    }
}
