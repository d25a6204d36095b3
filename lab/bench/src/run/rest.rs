//! Uneven rests between operations.
//!
//! Two threads that do nothing but the same short operations fall into step: each has the lines
//! that both change just when the other has no use for them, for hundreds of microseconds, and then
//! they meet in every operation for as long. So two cores of handles under one lock made 3,100 or
//! 790 operations in 100 us on a Zen 4, and how much of a run is of either kind is chance. Programs
//! do other things between two operations, never for exactly as long, and simulated cores never
//! take the same time for the same code. So where the two are held against each other, real ones
//! rest after each operation: for one step to 32, about 10 ns, which no core foresees. With four,
//! eight or sixteen at most they were in step still in some rounds.

/// log2 of the most steps of a rest.
const LOG2_MOST: u32 = 5;

/// Whoever rests; a thread's own.
pub(crate) struct Rests(u64);

impl Rests {
    /// Another row of rests for each `seed`.
    pub(crate) fn new(seed: usize) -> Self {
        let mut rests = Self(seed as u64);
        rests.step();
        rests
    }

    /// A step of a linear congruential generator, with the multiplier of D. E. Knuth's MMIX.
    #[inline]
    fn step(&mut self) {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }

    /// Rests.
    #[inline]
    pub(crate) fn rest(&mut self) {
        for _ in 0..=self.0 >> (64 - LOG2_MOST) {
            self.step();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of each of so many rests.
    fn steps(seed: usize, rests: usize) -> Vec<u32> {
        let (mut resting, mut stepping) = (Rests::new(seed), Rests::new(seed));
        let mut one = || {
            resting.rest();
            let mut steps = 0;
            while stepping.0 != resting.0 {
                stepping.step();
                steps += 1;
            }
            steps
        };
        (0..rests).map(|_| one()).collect()
    }

    #[test]
    fn rests_are_uneven_and_each_thread_has_its_own() {
        let one = steps(0, 4000);
        let most = 1 << LOG2_MOST;
        for n in 1..=most {
            let times = one.iter().filter(|steps| **steps == n).count();
            assert!((60..=200).contains(&times), "{n}: {times}");
        }
        assert!(one.iter().all(|steps| (1..=most).contains(steps)));
        // Nor are they like those of another, or like those before.
        let same = |a: &[u32], b: &[u32]| a.iter().zip(b).filter(|(a, b)| a == b).count();
        let other = steps(1, 4000);
        for (a, b) in [(&one[..], &other[..]), (&one[1..], &one[..]), (&one[..], &other[1..])] {
            assert!(same(a, b) < 300, "{}", same(a, b));
        }
    }
}
