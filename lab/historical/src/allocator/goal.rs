//! The goal of large files: the start of the search for a file's next blocks.

use super::freed::FreedLists;
use super::group_pos::GroupPos;
use crate::design::{self, GoalOrder};
use nextent_num::{must_fit, to_usize};
use nextent_ondisk::{GroupNo, InodeNo};
use nextent_sync::atomic::{AtomicU32, Ordering};
use nextent_sync::{KindMutex, available_cores};

/// The initial value of a word: no goal.
const UNSET: u32 = u32::MAX;

/// The storage of the goal, by design.
pub(super) enum Goal {
    /// `[historical.md]`
    Shared,
    /// In each file, under the file's lock.
    Inode,
    /// An array of words as in the original, 16 to a cache line; orderings of loads and stores.
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

    /// The goal for `ino`; `own` is the one in the inode.
    pub(super) fn get(
        &self,
        ino: InodeNo,
        own: Option<GroupPos>,
        shared: &KindMutex<FreedLists>,
    ) -> Option<GroupPos> {
        match self {
            Self::Shared => shared.lock().goal,
            Self::Inode => own,
            Self::Words(words, order, _) => {
                let group = words[to_usize(ino.0) % words.len()].load(*order);
                (group != UNSET).then_some(GroupPos { group: GroupNo(group), at: 0 })
            }
        }
    }

    /// Stores the position of an allocation for `ino`, even if it is unchanged. The caller stores a
    /// goal in the inode.
    pub(super) fn set(&self, ino: InodeNo, pos: GroupPos, shared: &KindMutex<FreedLists>) {
        match self {
            Self::Shared => shared.lock().goal = Some(pos),
            Self::Inode => {}
            Self::Words(words, _, order) => {
                words[to_usize(ino.0) % words.len()].store(pos.group.0, *order);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::freed::Freed;
    use super::*;
    use crate::design::Freed as FreedDesign;

    #[test]
    fn each_design_stores_its_goal() {
        let freed = Freed::new(FreedDesign::Listed, nextent_sync::LockKind::Spin);
        let pos = GroupPos { group: GroupNo(9), at: 70 };
        let (one, other) = (InodeNo(12), InodeNo(13));
        let shared = Goal::new(design::Goal::Shared, 40);
        assert_eq!(shared.get(one, Some(pos), &freed.md), None);
        shared.set(one, pos, &freed.md);
        assert_eq!(shared.get(other, None, &freed.md), Some(pos));
        let own = Goal::new(design::Goal::Inode, 40);
        own.set(one, pos, &freed.md);
        assert_eq!(own.get(other, None, &freed.md), None);
        assert_eq!(own.get(one, Some(pos), &freed.md), Some(pos));
        let start = Some(GroupPos { at: 0, ..pos });
        for order in [GoalOrder::Relaxed, GoalOrder::AcqRel] {
            let word = Goal::new(design::Goal::Word(order), 40);
            assert_eq!(word.get(one, Some(pos), &freed.md), None);
            word.set(one, pos, &freed.md);
            assert_eq!(word.get(other, None, &freed.md), start);
            let words = Goal::new(design::Goal::Words(order), 1);
            words.set(one, pos, &freed.md);
            assert_eq!(words.get(other, None, &freed.md), start, "a small volume has one word");
        }
    }
}
