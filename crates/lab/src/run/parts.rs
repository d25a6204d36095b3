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
//! Nor for long for a turn: where both threads share a core, or others do, a meeting is broken off,
//! and of none from then on is known how near the cores were.

use crate::turns::Turns;
use nextent_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use nextent_sync::{CachePadded, Duration, Instant, hint, now, thread};

/// How many threads meet.
pub(crate) const THREADS: usize = 2;
/// How long they work between two meetings.
pub(super) const BETWEEN: Duration = Duration::from_millis(3);
/// Turns that each takes in a meeting: some microseconds in all, unless a core was taken away.
const TURNS: u64 = 100;
/// Attempts for a turn before a meeting is broken off: hundreds of microseconds.
const ATTEMPTS: u32 = 20_000;
/// Looks for the other thread before a core is offered.
const LOOKS: u32 = 1 << 10;

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
    /// Whether one was broken off; then there are no turns in those that follow either, since the
    /// two may have stopped at different ones. [relaxed: found out soon enough]
    broken: CachePadded<AtomicBool>,
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
        for look in 1_u32.. {
            if self.came.load(Ordering::SeqCst) >= THREADS * (number + 1) {
                break;
            }
            if is_alone() {
                return None;
            }
            if look % LOOKS == 0 {
                thread::yield_now();
            }
            hint::spin_loop();
        }
        let began = now();
        let first = number as u64 * TURNS * THREADS as u64;
        let had = Turns::of(thread == 1, TURNS).all(|n| self.try_take(first + n));
        let left = now();
        let turn = match had {
            true => (left - began).as_nanos() as f64 / (TURNS * THREADS as u64) as f64,
            false => f64::INFINITY,
        };
        Some(Stop { came, left, ops, turn })
    }

    /// Whether turn `n` came in time.
    fn try_take(&self, n: u64) -> bool {
        if !self.broken.load(Ordering::Relaxed) && self.turns.try_take(n, ATTEMPTS) {
            return true;
        }
        self.broken.store(true, Ordering::Relaxed);
        false
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
    fn a_meeting_is_broken_off_if_a_turn_does_not_come() {
        let meetings = Meetings::default();
        // The other comes and takes no turn.
        meetings.came.fetch_add(1, Ordering::SeqCst);
        let stop = meetings.attend(0, 1, 7, || false).expect("the other came");
        assert_eq!((stop.ops, stop.turn), (7, f64::INFINITY));
        meetings.came.fetch_add(1, Ordering::SeqCst);
        let next = meetings.attend(1, 0, 8, || false).expect("the other came");
        assert_eq!((next.turn, meetings.try_take(0)), (f64::INFINITY, false));
    }

    #[test]
    fn who_is_alone_does_not_wait() {
        let meetings = Meetings::default();
        assert!(meetings.attend(0, 1, 0, || true).is_none());
    }
}
