//! How much two cores do with lines that both of them change all the time.
//!
//! Each has them in windows, every two turns. One word that both change as often as they can says
//! how often a core changes it in one window; two words that each changes one after the other, how
//! often it comes to the second in the window of the first.

use crate::run::pin;
use nextent_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use nextent_sync::{CachePadded, hint, now, thread};

/// Pairs of words, each pair on lines of its own: where a line belongs moves what it takes.
const PAIRS: usize = 32;
/// Times that each core changes them: for longer than one may begin before the other.
const TIMES: u64 = 2000;
/// No chance is taken to be better.
const BEST: f64 = 0.97;

type Pair = [CachePadded<AtomicU64>; 2];

/// Nanoseconds in which each of two cores changes so many words of each pair once, in the middle of
/// all pairs.
fn meet(words: usize) -> f64 {
    let pairs: Vec<Pair> = (0..PAIRS).map(|_| Pair::default()).collect();
    let ready = AtomicUsize::new(0);
    let side = |core: usize| {
        // Where that is refused the system chooses.
        let _ = pin(core);
        let of = |(number, pair): (usize, &Pair)| {
            ready.fetch_add(1, Ordering::SeqCst);
            while ready.load(Ordering::SeqCst) < 2 * (number + 1) {
                hint::spin_loop();
            }
            let began = now();
            for _ in 0..TIMES {
                for word in &pair[..words] {
                    word.fetch_add(1, Ordering::AcqRel);
                }
            }
            began.elapsed().as_nanos() as f64 / TIMES as f64
        };
        pairs.iter().enumerate().map(of).collect::<Vec<f64>>()
    };
    thread::scope(|scope| {
        let side = &side;
        let sides = [0, 1].map(|core| scope.spawn(move || side(core)));
        let [one, other] = sides.map(|side| side.join().unwrap_or_else(|_| vec![f64::NAN; PAIRS]));
        let both = one.iter().zip(other).map(|(one, other)| (one + other) / 2.0);
        super::measured::middle(&mut both.collect::<Vec<f64>>())
    })
}

/// The chances that a core that has changed a word in a window changes it again in that, and that
/// it changes another; `turn` nanoseconds are a turn of two cores.
pub(super) fn chances(turn: f64) -> [f64; 2] {
    from(turn, meet(1), meet(2))
}

/// The same, of what it takes to change one word and to change two.
fn from(turn: f64, one: f64, two: f64) -> [f64; 2] {
    let window = 2.0 * turn;
    [1.0 - one / window, 1.0 - two / (2.0 * window)].map(|chance| chance.clamp(0.0, BEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_what_is_done_in_a_window() {
        // As found on two kinds of processor.
        let near = |found: [f64; 2], wanted: [f64; 2]| {
            found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 0.01)
        };
        assert!(near(from(27.0, 34.4, 75.4), [0.36, 0.30]));
        assert!(near(from(26.0, 12.5, 44.0), [0.76, 0.58]));
        // None is worse than to wait for each use, nor certain.
        assert_eq!(from(10.0, 30.0, 0.0), [0.0, BEST]);
    }

    #[test]
    fn two_cores_meet() {
        assert!(chances(25.0).iter().all(|chance| (0.0..=BEST).contains(chance)));
    }
}
