//! Two threads that meet and change words in turns: how near to each other their cores are now.
//!
//! Meetings have numbers, and both attend the same ones; nobody waits for a thread that is over or
//! for one that was stopped. Nor for long for a turn: where both threads share a core, or others
//! do, a meeting is broken off, and of none from then on is known how near the cores were.

use crate::turns::Turns;
use nextent_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use nextent_sync::{CachePadded, hint, now, thread};

/// How many threads meet.
const THREADS: usize = 2;
/// Words that they change, one after another: a line belongs to a part of the cache, and one that
/// lies far from both would be long on its way for a whole run.
const WORDS: usize = 8;
/// Turns that each takes of a word in a meeting: some microseconds in all, unless a core was taken
/// away.
const TURNS: u64 = 12;
/// Attempts for a turn before a meeting is broken off: hundreds of microseconds.
const ATTEMPTS: u32 = 20_000;
/// Looks for the other thread before a core is offered.
const LOOKS: u32 = 1 << 10;

/// Where they meet.
#[derive(Default)]
pub(super) struct Meetings {
    turns: [Turns; WORDS],
    /// How often somebody came. [sequentially consistent; nothing else is passed on with it]
    came: CachePadded<AtomicUsize>,
    /// Whether one was broken off; then there are no turns in those that follow either, since the
    /// two may have stopped at different ones. [relaxed: found out soon enough]
    broken: CachePadded<AtomicBool>,
}

impl Meetings {
    /// Attends meeting `number`, from 0, as `thread`, 0 or 1: nanoseconds of a turn, infinitely
    /// many if it was broken off. None if the other will not come, as `is_alone` says.
    pub(super) fn attend(
        &self,
        number: usize,
        thread: usize,
        is_alone: impl Fn() -> bool,
    ) -> Option<f64> {
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
        let of = |word| Turns::of(thread == 1, TURNS).all(|n| self.try_take(word, first + n));
        let had = self.turns.iter().all(of);
        let turns = TURNS * (THREADS * WORDS) as u64;
        let took = began.elapsed().as_nanos() as f64 / turns as f64;
        Some(if had { took } else { f64::INFINITY })
    }

    /// Whether turn `n` of that word came in time.
    fn try_take(&self, word: &Turns, n: u64) -> bool {
        if !self.broken.load(Ordering::Relaxed) && word.try_take(n, ATTEMPTS) {
            return true;
        }
        self.broken.store(true, Ordering::Relaxed);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meeting_is_broken_off_if_a_turn_does_not_come() {
        let meetings = Meetings::default();
        // The other comes and takes no turn.
        meetings.came.fetch_add(1, Ordering::SeqCst);
        assert_eq!(meetings.attend(0, 1, || false), Some(f64::INFINITY));
        meetings.came.fetch_add(1, Ordering::SeqCst);
        let next = meetings.attend(1, 0, || false);
        assert_eq!((next, meetings.try_take(&meetings.turns[0], 0)), (Some(f64::INFINITY), false));
    }

    #[test]
    fn who_is_alone_does_not_wait() {
        let meetings = Meetings::default();
        assert!(meetings.attend(0, 1, || true).is_none());
    }
}
