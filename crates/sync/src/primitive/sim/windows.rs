//! Lines that two cores want all the time: each core has them for a moment, in turns.
//!
//! A core asks ahead for all that the code behind a read-modify-write uses, some hundreds of
//! instructions, however often it has lost it: so what two cores change over and over goes to and
//! fro between them whether they have come to it or not. What was asked for together comes
//! together, every two ways, and is gone a moment later. In such a window a core makes one change,
//! and another of the same line or of another one with a chance each, which are measured
//! (`Machine::windows`): it is a matter of the processor how many fit in. Who comes too late waits
//! for its next window. A change of a line that nobody else wants takes as long as one of another
//! that is there, so after it, too, the window may be over. And between cores that are far from
//! each other, where chances are good, lines that came together do not stay together for a way.
//!
//! This is where lines migrate. Who waits for a lock looks at it without asking ahead, and takes
//! the line whenever it looks; what has gone to such a look is fetched as any line is. And so is
//! what more than two cores want: it goes from one to the next, and windows come by chance
//! (`lines`).

use super::lines::{Machine, Use, Wish};
use super::table::Spreading;
use std::collections::HashMap;
use std::num::NonZeroU64;

/// For so many ways after it has changed a line a core wants it.
const WANTED: u64 = 4;

/// For so many ways after a third core has changed a line there is a crowd: of 16 cores that change
/// two words each comes to them every 16 ways.
const CROWDED: u64 = 16;

/// For so many hundredths of a way a core has the lines together that came in one window, and for
/// so many picoseconds at least: two cores that are 106 ns from each other do as many handles of
/// `ext4-2.6.36` as were measured with 33 to 45 hundredths.
const TOGETHER: u64 = 40;
const TOGETHER_AT_LEAST: u64 = 28_000;

/// The two cores that changed a line last, plus one, and when; and when it last was a third.
#[derive(Clone, Copy, Default)]
pub(super) struct Wanted {
    two: [(u16, u64); 2],
    third: Option<NonZeroU64>,
}

impl Wanted {
    /// A use by that core, at `now`.
    pub(super) fn note(&mut self, core: usize, which: Use, now: u64) {
        if !matches!(which, Use::Change | Use::Store) {
            return;
        }
        let me = core as u16 + 1;
        let [one, other] = &mut self.two;
        if [one.0, other.0].iter().all(|core| *core != 0 && *core != me) {
            self.third = NonZeroU64::new(now);
        }
        match (one.0 == me, other.0 == me) {
            (true, _) => one.1 = now,
            (_, true) => other.1 = now,
            _ if one.1 <= other.1 => *one = (me, now),
            _ => *other = (me, now),
        }
    }

    /// Whether more than two cores want it at `now`.
    pub(super) fn by_crowd(&self, machine: &Machine, now: u64) -> bool {
        self.third.is_some_and(|when| when.get() + CROWDED * machine.near >= now)
    }

    /// Whether `core` and another want it at `now`, and nobody else.
    fn by_both(&self, machine: &Machine, core: usize, now: u64) -> bool {
        let me = core as u16 + 1;
        let since = |(_, when): (u16, u64)| when + WANTED * machine.near >= now;
        let [mine, others] = [true, false].map(|mine| {
            self.two.iter().any(|one| one.0 != 0 && (one.0 == me) == mine && since(*one))
        });
        mine && others && !self.by_crowd(machine, now)
    }
}

/// A core's last window.
#[derive(Clone, Copy, Default)]
struct Window {
    begun: u64,
    /// The line used last in it, and whether that was changed.
    line: usize,
    changed: bool,
    /// Uses of such lines, and changes of the core's own, in all windows.
    uses: u64,
    /// Whether nothing more is had in it.
    over: bool,
}

/// The windows of all cores.
#[derive(Default)]
pub(super) struct Windows(HashMap<usize, Window, Spreading>);

impl Windows {
    /// When a line is there that was `wanted` so; none if it does not go to and fro.
    pub(super) fn there(
        &self,
        machine: &Machine,
        wanted: &Wanted,
        line: usize,
        wish: &Wish,
    ) -> Option<u64> {
        let chances = machine.windows.filter(|_| machine.migrates && !wish.looks)?;
        let Wish { core, which, now, .. } = *wish;
        if !wanted.by_both(machine, core, now) {
            return None;
        }
        let Window { begun, line: last, changed, uses, over } =
            self.0.get(&core).copied().unwrap_or_default();
        let every = 2 * machine.near;
        if now < begun {
            return Some(begun);
        }
        let again = last == line;
        let together = (machine.near * TOGETHER / 100).max(TOGETHER_AT_LEAST);
        let lasts = if again { machine.near } else { together.min(machine.near) };
        if over || now >= begun + lasts {
            return Some(begun + (now - begun).div_ceil(every).max(1) * every);
        }
        let fits = again && (which != Use::Change || !changed)
            || chance(core, uses) < chances[usize::from(!again)];
        Some(if fits { now } else { begun + every })
    }

    /// A use by that core of a line that both want, or of one that it had to wait for.
    pub(super) fn used(&mut self, line: usize, wish: &Wish, there: u64) {
        let window = self.0.entry(wish.core).or_default();
        let new = there > wish.now;
        if new {
            (window.begun, window.over) = (there, false);
        }
        let again = window.line == line && !new;
        window.changed = wish.which == Use::Change || again && window.changed;
        window.line = line;
        window.uses += 1;
    }

    /// A change by that core of a line that it has to itself.
    pub(super) fn changed_own(&mut self, machine: &Machine, core: usize) {
        let Some([_, other]) = machine.windows.filter(|_| machine.migrates) else { return };
        let Some(window) = self.0.get_mut(&core) else { return };
        window.over |= chance(core, window.uses) >= other;
        window.uses += 1;
    }
}

/// A number below a thousand, another one for each use.
pub(super) fn chance(core: usize, uses: u64) -> u64 {
    let mixed = (uses + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (core as u64) << 17;
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed ^ mixed >> 32) % 1000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arc;
    use crate::primitive::atomic::{AtomicU64, Ordering};
    use crate::primitive::sim::world::{clock, gather, run, settle};
    use crate::primitive::thread;
    use crossbeam_utils::CachePadded;

    fn two_cores(near: u64, windows: Option<[u64; 2]>) -> Machine {
        let distances = Machine { near, socket_far: near, across: near, ..Machine::default() };
        Machine {
            cores: 2,
            cluster: 2,
            socket: 2,
            line_shift: 6,
            rmw: 2_000,
            window: 20_000,
            unfair: true,
            migrates: true,
            windows,
            ..distances
        }
    }

    /// A word of the core's own.
    const P: usize = 3;

    /// Nanoseconds in which each of two cores changes those words once, one after the other.
    fn changing(words: &'static [usize], near: u64, windows: Option<[u64; 2]>) -> u64 {
        const TIMES: u64 = 2000;
        let go_on = move |all: &[CachePadded<AtomicU64>; 3]| {
            let own = CachePadded::new(AtomicU64::new(0));
            let began = clock();
            for _ in 0..TIMES {
                for word in words {
                    all.get(*word).unwrap_or(&own).fetch_add(1, Ordering::Relaxed);
                }
            }
            (clock() - began) / TIMES / 1000
        };
        run(two_cores(near, windows), move || {
            let all: Arc<[CachePadded<AtomicU64>; 3]> = Arc::default();
            let others = all.clone();
            let other = thread::spawn(move || {
                gather(1, 2, 0, 0);
                go_on(&others)
            });
            gather(0, 2, 0, 0);
            let one = go_on(&all);
            let other = other.join().expect("it does not panic");
            settle();
            one.midpoint(other)
        })
    }

    #[test]
    fn patterns_of_changes_take_what_they_take() {
        const ONE: &[usize] = &[0];
        const TWO: &[usize] = &[0, 1];
        const IN_A_ROW: &[usize] = &[0, 1, 1, 1, 0];
        const THREE: &[usize] = &[0, 1, 2];
        const OWN: &[usize] = &[P, 0, P, 0, P, P];
        const OWN_BETWEEN: &[usize] = &[0, P, P, P, P, 1, P, P, P, P];
        // Measured on two kinds of processor, and on one of them with cores far from each other
        // (two words in 38 to 53 ns there); the chances are those that one word and two tell.
        let older: &[_] = &[(ONE, 34), (TWO, 75), (IN_A_ROW, 142), (THREE, 109)];
        let newer: &[_] = &[(ONE, 12), (TWO, 44)];
        let again: &[_] = &[(ONE, 9), (TWO, 42), (OWN, 75)];
        let far: &[_] = &[(ONE, 13), (TWO, 45)];
        let farther: &[_] = &[(TWO, 26), (OWN, 58), (OWN_BETWEEN, 142)];
        let (older, newer) = ((27_000, [400, 300], older), (26_000, [760, 580], newer));
        let again = (26_000, [820, 600], again);
        let (far, farther) = ((100_000, [930, 880], far), (152_000, [970, 959], farther));
        for (near, chances, measured) in [older, newer, again, far, farther] {
            for &(words, real) in measured {
                let found = changing(words, near, Some(chances)) as f64;
                let off = found / f64::from(real);
                assert!((0.8..1.25).contains(&off), "{words:?}: {found}, not {real}");
            }
        }
        // Without them a core does all that comes in a row.
        assert!(changing(IN_A_ROW, 27_000, None) < 80);
    }

    #[test]
    fn what_only_one_core_wants_is_its_own() {
        let machine = two_cores(30_000, Some([0, 0]));
        let machine_of_all = two_cores(30_000, Some([1000, 1000]));
        let (mut wanted, mut windows) = (Wanted::default(), Windows::default());
        let wish = |core, which, now| Wish { core, which, begun: now, now, looks: false };
        let there = |windows: &Windows, wanted: &Wanted, wish: &Wish| {
            windows.there(&machine, wanted, 7, wish)
        };
        wanted.note(0, Use::Change, 1_000_000);
        wanted.note(1, Use::Load, 1_000_000);
        let change = |now| wish(0, Use::Change, now);
        assert_eq!(there(&windows, &wanted, &change(1_000_000)), None);
        wanted.note(1, Use::Store, 1_000_000);
        // Every two ways from its last window on; one change in each, and looks at what it changed.
        windows.used(7, &change(900_000), 1_000_000);
        assert_eq!(there(&windows, &wanted, &change(990_000)), Some(1_000_000));
        assert_eq!(there(&windows, &wanted, &change(1_001_000)), Some(1_060_000));
        assert_eq!(there(&windows, &wanted, &change(1_031_000)), Some(1_060_000));
        assert_eq!(there(&windows, &wanted, &change(1_061_000)), Some(1_120_000));
        assert_eq!(there(&windows, &wanted, &wish(0, Use::Load, 1_001_000)), Some(1_001_000));
        assert_eq!(
            windows.there(&machine, &wanted, 8, &wish(0, Use::Load, 1_001_000)),
            Some(1_060_000)
        );
        let looks = Wish { looks: true, ..change(1_001_000) };
        assert_eq!(there(&windows, &wanted, &looks), None);
        // Of lines that came together only one is there for longer than 28 ns.
        windows.used(7, &change(1_000_000), 1_060_000);
        let other = |windows: &Windows, now| {
            windows.there(&machine_of_all, &wanted, 8, &wish(0, Use::Change, now))
        };
        assert_eq!(other(&windows, 1_087_000), Some(1_087_000));
        assert_eq!(other(&windows, 1_088_000), Some(1_120_000));
        // A change of one's own may end it.
        windows.changed_own(&machine, 0);
        assert_eq!(other(&windows, 1_061_000), Some(1_120_000));
        // A third comes, and all have it in turns until that is long ago.
        let mut crowd = wanted;
        for core in [2, 1, 0] {
            crowd.note(core, Use::Change, 1_001_000);
        }
        assert_eq!(there(&windows, &crowd, &change(1_002_000)), None);
        let ways = CROWDED * machine.near;
        assert!(crowd.by_crowd(&machine, 1_001_000 + ways));
        assert!(!crowd.by_crowd(&machine, 1_001_001 + ways));
        assert!(!wanted.by_crowd(&machine, 1_001_000));
        // The other has left it for long.
        wanted.note(0, Use::Change, 1_130_000);
        assert_eq!(there(&windows, &wanted, &change(1_130_000)), None);
    }
}
