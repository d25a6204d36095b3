//! Whether a line comes whole to who looks at it.
//!
//! One core changes many words, each on a line of its own, and another goes through them in a
//! chain, the next word being what it finds in the last: by changing each, or by looking at each
//! and then changing it. If a line comes whole for the look, both take one way for a word, and else
//! the second takes two. Nobody contends for a line, so nothing else is in it: between two cores
//! that change one word in turns and look at it meanwhile, looks take the line away from who is
//! about to change it, and a turn with them took 1.2 to 1.5 times as long as one without though the
//! lines came whole.

use crate::run::pin;
use nextent_sync::atomic::{AtomicUsize, Ordering};
use nextent_sync::{CachePadded, hint, now, thread};

/// Words: some microseconds for one time through them.
const WORDS: usize = 128;
/// How often each is measured.
const TIMES: usize = 31;

/// What is done with each word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Change,
    LookAndChange,
}

struct Chain {
    words: Vec<CachePadded<AtomicUsize>>,
    /// Odd while they are to be changed, even once they are. [released by whoever ends his part,
    /// acquired by the other]
    stage: CachePadded<AtomicUsize>,
}

/// Which word comes after that: each once, at distances that differ, so that nothing fetches it
/// before it is asked for.
fn next(at: usize) -> usize {
    (5 * at + 37) % WORDS
}

impl Chain {
    fn new() -> Self {
        let next = |at| CachePadded::new(AtomicUsize::new(next(at)));
        Self { words: (0..WORDS).map(next).collect(), stage: CachePadded::default() }
    }

    fn wait_for(&self, stage: usize) {
        while self.stage.load(Ordering::Acquire) != stage {
            hint::spin_loop();
        }
    }

    /// Changes all whenever they are to be.
    fn give(&self) {
        for time in 0..2 * TIMES {
            self.wait_for(2 * time + 1);
            for word in &self.words {
                let same = word.load(Ordering::Relaxed);
                word.store(same, Ordering::Relaxed);
            }
            self.stage.store(2 * time + 2, Ordering::Release);
        }
    }

    /// Goes through all once they were changed; how long it took, in nanoseconds.
    fn take(&self, time: usize, step: Step) -> f64 {
        self.stage.store(2 * time + 1, Ordering::Release);
        self.wait_for(2 * time + 2);
        let (began, mut at) = (now(), 0);
        for _ in 0..WORDS {
            let word = &self.words[at];
            if step == Step::LookAndChange && word.load(Ordering::Relaxed) >= WORDS {
                break;
            }
            // The same again, but not as a sum with 0, which compilers make a load.
            at = word.swap(next(at), Ordering::Relaxed);
        }
        hint::black_box(at);
        began.elapsed().as_nanos() as f64
    }
}

/// What words take that another core has changed, one after another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passing {
    /// Nanoseconds of a look at a word and a change of it.
    pub(super) both: f64,
    /// By those of a change alone: about as long, or twice as long.
    pub(super) look: f64,
}

/// Measures with the first two cores.
pub(super) fn passing() -> Passing {
    let chain = &Chain::new();
    let take = || {
        // Where that is refused the system chooses.
        let _ = pin(0);
        let middle = |step, from| {
            let times = (from..from + TIMES).map(|time| chain.take(time, step));
            super::measured::middle(&mut times.collect::<Vec<f64>>())
        };
        let change = middle(Step::Change, 0);
        let both = middle(Step::LookAndChange, TIMES);
        Passing { both: both / WORDS as f64, look: both / change }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = pin(1);
            chain.give();
        });
        scope.spawn(take).join().unwrap_or(Passing { both: f64::NAN, look: f64::NAN })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_goes_through_all_words() {
        let chain = Chain::new();
        let mut seen: Vec<usize> =
            std::iter::successors(Some(0), |at| Some(next(*at))).take(WORDS).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..WORDS));
        thread::scope(|scope| {
            scope.spawn(|| chain.give());
            for time in 0..2 * TIMES {
                let step = if time % 2 == 0 { Step::Change } else { Step::LookAndChange };
                assert!(chain.take(time, step) > 0.0);
            }
        });
        let is_same = |(at, word): (usize, &CachePadded<AtomicUsize>)| {
            word.load(Ordering::Relaxed) == next(at)
        };
        assert!(chain.words.iter().enumerate().all(is_same));
    }
}
