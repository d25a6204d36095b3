//! Freed clusters that are not allocatable before the free is durable.
//!
//! Each freed run has a record. The record is in the tree of its group, which finds neighbours and
//! detects a second free. It is also in one of two lists of the volume, chosen by the parity of its
//! transaction: one transaction runs while the other commits. When a transaction is durable, the
//! allocator takes its list and returns each record's clusters to their group's buddy.
//!
//! The designs differ in how often they take the lock of the lists:
//!
//! | design | a run with neighbours | a run without | a record after the commit |
//! |---|---|---|---|
//! | `Listed` | for each neighbour, to remove it, and to add the result | once | once, for the count |
//! | `ListedAtomicCount` | as above | once | never |
//! | `MergedFirst` | only to remove the second neighbour | once | never |

use super::group_pos::GroupPos;
use super::locks;
use crate::design;
use nextent::lab_seams::alloc::buddy::Run;
use nextent_num::{must_fit, to_usize};
use nextent_ondisk::{GroupNo, Tid};
use nextent_sync::atomic::{AtomicI64, AtomicU32, Ordering};
use nextent_sync::{Arc, CachePadded, KindMutex, LockKind, computes};
use std::collections::BTreeMap;

/// A freed run.
pub(super) struct FreedRecord {
    group: GroupNo,
    tid: Tid,
    /// `[historical.group]`; relaxed.
    start: AtomicU32,
    /// `[historical.group]`; relaxed. Zero after the record has been removed.
    n: AtomicU32,
    /// Its index in its list. `[historical.md]`; relaxed.
    index: AtomicU32,
}

impl FreedRecord {
    fn new(group: GroupNo, tid: Tid, (start, n): Run) -> Arc<Self> {
        let [start, n, index] = [start, n, 0].map(AtomicU32::new);
        Arc::new(Self { group, tid, start, n, index })
    }

    pub(super) fn group(&self) -> GroupNo {
        self.group
    }

    /// The clusters. `[historical.group]`
    pub(super) fn run(&self) -> Run {
        (self.start.load(Ordering::Relaxed), self.n.load(Ordering::Relaxed))
    }

    fn set(&self, (start, n): Run) {
        self.start.store(start, Ordering::Relaxed);
        self.n.store(n, Ordering::Relaxed);
    }
}

/// The records of one group by first cluster. `[historical.group]`
pub(super) type FreedTree = BTreeMap<u32, Arc<FreedRecord>>;

/// The data under `s_md_lock` of the original. `[historical.md]`
#[derive(Default)]
pub(super) struct FreedLists {
    /// The goal of all large files, in designs that share it.
    pub(super) goal: Option<GroupPos>,
    lists: [Vec<Option<Arc<FreedRecord>>>; 2],
    pending: i64,
}

impl FreedLists {
    fn add(&mut self, record: &Arc<FreedRecord>) {
        let list = &mut self.lists[to_usize(record.tid.0) % 2];
        record.index.store(must_fit(list.len()), Ordering::Relaxed);
        list.push(Some(record.clone()));
    }

    fn remove(&mut self, record: &FreedRecord) {
        let index = to_usize(record.index.load(Ordering::Relaxed));
        self.lists[to_usize(record.tid.0) % 2][index] = None;
    }
}

/// All freed runs that are not durable.
pub(super) struct Freed {
    how: design::Freed,
    pub(super) md: CachePadded<KindMutex<FreedLists>>,
    /// Clusters in the lists, in designs with an atomic count. Relaxed: a count.
    pending: CachePadded<AtomicI64>,
}

impl Freed {
    pub(super) fn new(how: design::Freed, kind: LockKind) -> Self {
        Self {
            how,
            md: CachePadded::new(KindMutex::of_kind(kind, &locks::MD, FreedLists::default())),
            pending: CachePadded::new(AtomicI64::new(0)),
        }
    }

    /// Whether clusters wait for a commit.
    pub(super) fn has_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > 0 || self.md.lock().pending > 0
    }

    /// Records that `tid` has freed a run. The caller holds the group's lock, which guards `tree`.
    ///
    /// # Errors
    /// The first cluster that already has a record.
    pub(super) fn add(
        &self,
        tree: &mut FreedTree,
        group: GroupNo,
        tid: Tid,
        run: Run,
    ) -> Result<(), u32> {
        // Instructions counted by callgrind.
        computes(1000);
        let left = tree.range(..=run.0).next_back().map(|(_, record)| record);
        let right = tree.range(run.0..).next().map(|(_, record)| record);
        if let Some(left) = left
            && left.run().0 + left.run().1 > run.0
        {
            return Err(run.0);
        }
        if let Some(right) = right
            && right.run().0 < run.0 + run.1
        {
            return Err(right.run().0);
        }
        // Clone a neighbour only if the run extends it: a clone stores to a shared record.
        let ends_here = |left: &&Arc<FreedRecord>| left.run().0 + left.run().1 == run.0;
        let left = left.filter(|left| left.tid == tid).filter(ends_here).cloned();
        let begins_here = |right: &&Arc<FreedRecord>| right.run().0 == run.0 + run.1;
        let right = right.filter(|right| right.tid == tid).filter(begins_here).cloned();
        if self.how == design::Freed::MergedFirst {
            self.grow_neighbour(tree, FreedRecord::new(group, tid, run), left, right);
        } else {
            self.absorb_neighbours(tree, FreedRecord::new(group, tid, run), left, right);
        }
        Ok(())
    }

    /// Merges the neighbours into the new record, removes them from their list, and lists the
    /// record.
    fn absorb_neighbours(
        &self,
        tree: &mut FreedTree,
        new: Arc<FreedRecord>,
        left: Option<Arc<FreedRecord>>,
        right: Option<Arc<FreedRecord>>,
    ) {
        let freed = i64::from(new.run().1);
        for other in [left, right].into_iter().flatten() {
            let ((start, n), (from, more)) = (new.run(), other.run());
            new.set((start.min(from), n + more));
            tree.remove(&from);
            self.md.lock().remove(&other);
        }
        tree.insert(new.run().0, new.clone());
        let mut md = self.md.lock();
        md.add(&new);
        if self.how == design::Freed::Listed {
            md.pending += freed;
        } else {
            drop(md);
            self.pending.fetch_add(freed, Ordering::Relaxed);
        }
    }

    /// Merges the run into a neighbour, if there is one. Takes the lock only to add a record to a
    /// list or to remove one.
    fn grow_neighbour(
        &self,
        tree: &mut FreedTree,
        new: Arc<FreedRecord>,
        left: Option<Arc<FreedRecord>>,
        right: Option<Arc<FreedRecord>>,
    ) {
        let (start, n) = new.run();
        self.pending.fetch_add(i64::from(n), Ordering::Relaxed);
        match (left, right) {
            (Some(left), right) => {
                let (from, before) = left.run();
                let after = right.as_ref().map_or(0, |right| right.run().1);
                left.set((from, before + n + after));
                if let Some(right) = right {
                    tree.remove(&right.run().0);
                    self.md.lock().remove(&right);
                }
            }
            (None, Some(right)) => {
                let (from, after) = right.run();
                tree.remove(&from);
                right.set((start, n + after));
                tree.insert(start, right);
            }
            (None, None) => {
                tree.insert(start, new.clone());
                self.md.lock().add(&new);
            }
        }
    }

    /// Takes all records of the durable transaction `tid`.
    pub(super) fn take(&self, tid: Tid) -> Vec<Arc<FreedRecord>> {
        let list = std::mem::take(&mut self.md.lock().lists[to_usize(tid.0) % 2]);
        list.into_iter().flatten().collect()
    }

    /// Subtracts a record that [`Self::take`] returned, before the caller takes its group's lock.
    pub(super) fn subtract(&self, n: u32) {
        if self.how == design::Freed::Listed {
            self.md.lock().pending -= i64::from(n);
        } else {
            self.pending.fetch_sub(i64::from(n), Ordering::Relaxed);
        }
    }

    /// Removes the records of a range, because a replay may reuse it at once. The caller holds the
    /// group's lock.
    pub(super) fn forget(&self, tree: &mut FreedTree, group: GroupNo, (start, n): Run) {
        let end = start + n;
        let touched: Vec<Arc<FreedRecord>> = tree
            .range(..end)
            .map(|(_, record)| record.clone())
            .filter(|record| record.run().0 + record.run().1 > start)
            .collect();
        for record in touched {
            let (from, len) = record.run();
            let to = from + len;
            tree.remove(&from);
            self.md.lock().remove(&record);
            self.subtract(len);
            for part in [(from, start.saturating_sub(from)), (end, to.saturating_sub(end))] {
                if part.1 > 0 {
                    let kept = self.add(tree, group, record.tid, part);
                    debug_assert!(kept.is_ok(), "each part of a record is added once");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupNo = GroupNo(3);

    fn runs(tree: &FreedTree) -> Vec<Run> {
        tree.values().map(|record| record.run()).collect()
    }

    fn taken(freed: &Freed, tid: Tid) -> Vec<Run> {
        let records = freed.take(tid);
        records.iter().for_each(|record| freed.subtract(record.run().1));
        let mut runs: Vec<Run> = records.iter().map(|record| record.run()).collect();
        runs.sort_unstable();
        runs
    }

    #[test]
    fn neighbours_of_one_transaction_become_one_record() {
        use design::Freed::{Listed, ListedAtomicCount, MergedFirst};
        for how in [Listed, ListedAtomicCount, MergedFirst] {
            let (freed, mut tree) = (Freed::new(how, LockKind::Sleep), FreedTree::new());
            let (now, next) = (Tid(6), Tid(7));
            let mut add = |tid, run| freed.add(&mut tree, GROUP, tid, run);
            for run in [(10, 5), (20, 5), (15, 5), (40, 2), (38, 2)] {
                add(now, run).unwrap();
            }
            add(next, (25, 3)).unwrap();
            add(next, (50, 1)).unwrap();
            assert_eq!(add(next, (12, 1)), Err(12), "{how:?}");
            assert_eq!(add(now, (30, 9)), Err(38));
            assert_eq!(runs(&tree), [(10, 15), (25, 3), (38, 4), (50, 1)]);
            assert!(freed.has_pending());
            assert_eq!(taken(&freed, now), [(10, 15), (38, 4)]);
            assert_eq!(taken(&freed, next), [(25, 3), (50, 1)]);
            assert!(!freed.has_pending());
        }
    }

    #[test]
    fn a_reused_range_has_no_record() {
        for how in [design::Freed::Listed, design::Freed::MergedFirst] {
            let (freed, mut tree) = (Freed::new(how, LockKind::Sleep), FreedTree::new());
            freed.add(&mut tree, GROUP, Tid(2), (10, 20)).unwrap();
            freed.add(&mut tree, GROUP, Tid(2), (40, 5)).unwrap();
            freed.forget(&mut tree, GROUP, (15, 5));
            freed.forget(&mut tree, GROUP, (38, 10));
            assert_eq!(runs(&tree), [(10, 5), (20, 10)]);
            assert_eq!(taken(&freed, Tid(2)), [(10, 5), (20, 10)]);
            assert!(!freed.has_pending());
        }
    }
}
