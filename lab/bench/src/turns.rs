//! A word that two cores change in turns, written once for real and simulated cores: what a turn
//! takes on real ones tells how near they are to each other, and from that follows how long a line
//! is on its way between simulated ones.

use nextent_sync::atomic::{AtomicU64, Ordering};
use nextent_sync::{CachePadded, hint};

/// Whose turn it is, on a line of its own. Relaxed: nothing else is passed on with it.
#[derive(Default)]
pub(crate) struct Turns(CachePadded<AtomicU64>);

impl Turns {
    /// Waits for turn `n`, and ends it: by asking for the line as one that is to be changed each
    /// time, so that its coming is all that a turn takes.
    ///
    /// There is a short rest between two attempts. Without one a core may ask again before it gives
    /// away the line that it has just changed, and a turn takes one and a half ways or one, by some
    /// cycles more or less in the loop: 60 to 100 ns of the same two cores.
    pub(crate) fn take(&self, n: u64) {
        while !self.attempt(n) {}
    }

    /// As [`Self::take`], but not after so many attempts; whether it was its turn.
    #[cfg(feature = "simulation")]
    pub(crate) fn try_take(&self, n: u64, attempts: u32) -> bool {
        (0..attempts).any(|_| self.attempt(n))
    }

    /// Ends turn `n` if it has come, or rests.
    fn attempt(&self, n: u64) -> bool {
        let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        let had = self.0.compare_exchange(n, n + 1, order, failed).is_ok();
        if !had {
            hint::spin_loop();
        }
        had
    }

    /// Which of `turns` are one side's: the even or the odd ones.
    pub(crate) fn of(odd: bool, turns: u64) -> impl Iterator<Item = u64> {
        (0..turns).map(move |n| 2 * n + u64::from(odd))
    }
}
