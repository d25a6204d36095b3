//! A run of two threads in parts: every few milliseconds both stop between two operations, change a
//! word in turns, and go on.
//!
//! The cores of a virtual machine are moved some tens of times a second: for a while they share a
//! cache, then they do not, then they are halves of one core. A figure of a tenth of a second is
//! one of several machines; a part between two meetings that found the cores equally near to each
//! other is one of a single machine, of which is known which.
//!
//! Meetings are called by number. Who has missed some attends each that was called, so that both
//! attend the same ones, and nobody waits for a thread that is over or for one that was stopped.

use crate::turns::Turns;
use nextent_sync::atomic::{AtomicUsize, Ordering};
use nextent_sync::{CachePadded, Duration, Instant, hint, now};

/// How many threads meet.
pub(crate) const THREADS: usize = 2;
/// How long they work between two meetings.
pub(super) const BETWEEN: Duration = Duration::from_millis(3);
/// Turns that each takes in a meeting: some microseconds in all, unless a core was taken away.
const TURNS: u64 = 100;

/// What two threads did between two meetings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Part {
    /// How long they worked, in the mean.
    pub(crate) seconds: f64,
    /// Operations a second of both.
    pub(crate) rate: f64,
    /// Nanoseconds of a turn, in the meeting before and in the one after.
    pub(crate) turns: [f64; 2],
}

/// One thread's part in a meeting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stop {
    came: Instant,
    left: Instant,
    /// Its operations until then.
    ops: u64,
    /// Nanoseconds of a turn.
    turn: f64,
}

/// Where they meet.
#[derive(Default)]
pub(super) struct Meetings {
    turns: Turns,
    /// How often somebody came. [sequentially consistent; nothing else is passed on with it]
    came: CachePadded<AtomicUsize>,
}

impl Meetings {
    /// Attends meeting `number`, from 0, after so many operations, as `thread`, 0 or 1. None if the
    /// other will not come, as `is_alone` says.
    pub(super) fn attend(
        &self,
        number: usize,
        thread: usize,
        ops: u64,
        is_alone: impl Fn() -> bool,
    ) -> Option<Stop> {
        let came = now();
        self.came.fetch_add(1, Ordering::SeqCst);
        while self.came.load(Ordering::SeqCst) < THREADS * (number + 1) {
            if is_alone() {
                return None;
            }
            hint::spin_loop();
        }
        let first = number as u64 * TURNS * THREADS as u64;
        let began = now();
        Turns::of(thread == 1, TURNS).for_each(|n| self.turns.take(first + n));
        let left = now();
        let turn = (left - began).as_nanos() as f64 / (TURNS * THREADS as u64) as f64;
        Some(Stop { came, left, ops, turn })
    }
}

/// The parts between the stops of both threads.
pub(super) fn parts(stops: &[&[Stop]]) -> Vec<Part> {
    let [one, other] = stops else { return Vec::new() };
    let both: Vec<[Stop; 2]> = one.iter().zip(*other).map(|(one, other)| [*one, *other]).collect();
    both.windows(2)
        .map(|stops| {
            let (before, after) = (&stops[0], &stops[1]);
            let seconds =
                |side: usize| (after[side].came - before[side].left).as_secs_f64().max(1e-9);
            let rate = |side: usize| (after[side].ops - before[side].ops) as f64 / seconds(side);
            let turn = |stop: &[Stop; 2]| (stop[0].turn + stop[1].turn) / 2.0;
            Part {
                seconds: (seconds(0) + seconds(1)) / 2.0,
                rate: rate(0) + rate(1),
                turns: [turn(before), turn(after)],
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_lies_between_two_meetings() {
        let start = now();
        let stop = |came: u64, ops, turn| {
            let came = start + Duration::from_micros(came);
            Stop { came, left: came + Duration::from_micros(10), ops, turn }
        };
        let one = vec![stop(0, 5, 20.0), stop(1010, 105, 30.0), stop(2020, 205, 90.0)];
        let other = vec![stop(0, 7, 22.0), stop(2010, 107, 30.0)];
        let found = parts(&[&one, &other]);
        assert_eq!(found.len(), 1);
        assert!((found[0].rate / 150_000.0 - 1.0).abs() < 1e-6, "{found:?}");
        assert!((found[0].seconds / 0.0015 - 1.0).abs() < 1e-6, "{found:?}");
        assert_eq!(found[0].turns, [21.0, 30.0]);
        assert_eq!(parts(&[&one]), []);
    }

    #[test]
    fn who_is_alone_does_not_wait() {
        let meetings = Meetings::default();
        assert!(meetings.attend(0, 1, 0, || true).is_none());
    }
}
