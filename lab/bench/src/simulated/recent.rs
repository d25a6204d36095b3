//! The blocks of a device in memory that a core has written last, and how it comes to others.
//!
//! What a core has written a moment ago it has in its caches. Of what lies behind that it has
//! begun to get some by itself; and of what lies beside it knows where it is.

use nextent_sync::atomic::{AtomicU64, Ordering};

/// Blocks that lie together in memory.
pub(super) const TOGETHER: u64 = 4;
/// Blocks that a core has in its caches: a mebibyte.
const RECENT: usize = 256;
/// No block.
const NONE: u64 = u64::MAX;

/// How a core comes to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// It has written it a moment ago.
    Again,
    /// It has written the one before it, which lies beside it.
    Next,
    /// It has written another that lies beside it.
    Near,
    /// It has written nothing there.
    Late,
}

/// What one core has written last. Relaxed: nobody else looks at it.
pub(super) struct Recent([AtomicU64; RECENT]);

impl Default for Recent {
    fn default() -> Self {
        Self([NONE; RECENT].map(AtomicU64::new))
    }
}

impl Recent {
    fn place(&self, block: u64) -> &AtomicU64 {
        &self.0[block as usize % RECENT]
    }

    fn has(&self, block: u64) -> bool {
        self.place(block).load(Ordering::Relaxed) == block
    }

    /// The core writes a block: how it comes to it.
    pub(super) fn meet(&self, block: u64) -> Met {
        let first = block / TOGETHER * TOGETHER;
        let met = if self.has(block) {
            Met::Again
        } else if block > first && self.has(block - 1) {
            Met::Next
        } else if (first..first + TOGETHER).any(|beside| self.has(beside)) {
            Met::Near
        } else {
            Met::Late
        };
        self.place(block).store(block, Ordering::Relaxed);
        met
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_behind_is_nearer_than_what_lies_beside() {
        let recent = Recent::default();
        let meet = |blocks: &[u64]| blocks.iter().map(|at| recent.meet(*at)).collect::<Vec<_>>();
        assert_eq!(
            meet(&[0, 1, 3, 2, 1]),
            [Met::Late, Met::Next, Met::Near, Met::Next, Met::Again]
        );
        // Those behind lie elsewhere in memory.
        assert_eq!(meet(&[4, 6, 5, 9, 8]), [Met::Late, Met::Near, Met::Next, Met::Late, Met::Near]);
        // Long ago.
        assert_eq!(meet(&[256, 0, 1]), [Met::Late, Met::Near, Met::Again]);
        (1000..1256).for_each(|at| _ = recent.meet(at));
        assert_eq!(meet(&[0, 1]), [Met::Late, Met::Next]);
    }
}
