//! Where the search for a large file's next blocks begins.

use super::freed::Md;
use super::place::Place;
use crate::design::{self, GoalOrder};
use nextent_num::{must_fit, to_usize};
use nextent_ondisk::{GroupNo, InodeNo};
use nextent_sync::atomic::{AtomicU32, Ordering};
use nextent_sync::{KindMutex, available_cores};

/// A word that says nothing yet.
const UNSET: u32 = u32::MAX;

/// The goal of large files, in the design's way.
pub(super) enum Goal {
    /// `[historical.md]`
    Shared,
    /// In each file, under its own lock.
    Inode,
    /// Side by side as in the original, 16 to a cache line.
    Words(Box<[AtomicU32]>, Ordering, Ordering),
}

impl Goal {
    pub(super) fn new(goal: design::Goal, groups: u32) -> Self {
        let words = |n: u32, order| {
            let words = (0..n.max(1)).map(|_| AtomicU32::new(UNSET)).collect();
            match order {
                GoalOrder::Relaxed => Self::Words(words, Ordering::Relaxed, Ordering::Relaxed),
                GoalOrder::AcqRel => Self::Words(words, Ordering::Acquire, Ordering::Release),
            }
        };
        match goal {
            design::Goal::Inode => Self::Inode,
            design::Goal::Word(order) => words(1, order),
            design::Goal::Words(order) => {
                words(must_fit::<u32, _>(available_cores()).min(groups.div_ceil(4)), order)
            }
            _ => Self::Shared,
        }
    }

    /// Where the search for `ino` begins, whose own goal is `own`.
    pub(super) fn get(
        &self,
        ino: InodeNo,
        own: Option<Place>,
        shared: &KindMutex<Md>,
    ) -> Option<Place> {
        match self {
            Self::Shared => shared.lock().goal,
            Self::Inode => own,
            Self::Words(words, order, _) => {
                let group = words[to_usize(ino.0) % words.len()].load(*order);
                (group != UNSET).then_some(Place { group: GroupNo(group), at: 0 })
            }
        }
    }

    /// Blocks were found at `place` for `ino`; stored even if it is what was there. The goal of a
    /// file in its own keeping is stored by the caller.
    pub(super) fn set(&self, ino: InodeNo, place: Place, shared: &KindMutex<Md>) {
        match self {
            Self::Shared => shared.lock().goal = Some(place),
            Self::Inode => {}
            Self::Words(words, _, order) => {
                words[to_usize(ino.0) % words.len()].store(place.group.0, *order);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::freed::Freed;
    use super::*;
    use crate::design::Freed as How;

    #[test]
    fn each_design_keeps_its_goal_where_it_did() {
        let freed = Freed::new(How::Listed, nextent_sync::LockKind::Spin);
        let place = Place { group: GroupNo(9), at: 70 };
        let (one, other) = (InodeNo(12), InodeNo(13));
        let shared = Goal::new(design::Goal::Shared, 40);
        assert_eq!(shared.get(one, Some(place), &freed.md), None);
        shared.set(one, place, &freed.md);
        assert_eq!(shared.get(other, None, &freed.md), Some(place));
        let own = Goal::new(design::Goal::Inode, 40);
        own.set(one, place, &freed.md);
        assert_eq!(own.get(other, None, &freed.md), None);
        assert_eq!(own.get(one, Some(place), &freed.md), Some(place));
        let start = Some(Place { at: 0, ..place });
        for order in [GoalOrder::Relaxed, GoalOrder::AcqRel] {
            let word = Goal::new(design::Goal::Word(order), 40);
            assert_eq!(word.get(one, Some(place), &freed.md), None);
            word.set(one, place, &freed.md);
            assert_eq!(word.get(other, None, &freed.md), start);
            let words = Goal::new(design::Goal::Words(order), 1);
            words.set(one, place, &freed.md);
            assert_eq!(words.get(other, None, &freed.md), start, "a small volume has one");
        }
    }
}
