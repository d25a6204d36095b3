//! Draws from the shared generator.

use crate::differential::cases::Rng;

impl Rng {
    /// True in `chance` of a hundred draws.
    pub(super) fn chance(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// One of `of`.
    pub(super) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let at = self.below(of.len() as u64);
        &of[usize::try_from(at).expect("an index")]
    }

    /// A number from `from` to `to`, both included.
    pub(super) fn count(&mut self, from: usize, to: usize) -> usize {
        from + usize::try_from(self.below((to - from + 1) as u64)).expect("a small number")
    }
}
