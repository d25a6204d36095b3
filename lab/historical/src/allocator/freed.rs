//! Clusters that were freed and may not be handed out before that is durable.
//!
//! A record for each run: in a tree of its group, so that neighbours are found
//! and a second release is noticed, and in one of two lists of the volume, by
//! the parity of its transaction, of which one runs while the other commits.
//! When a transaction is durable its list is taken and each record's clusters
//! go back to their group's buddy.
//!
//! What the designs differ in is how often the one lock of the lists is taken:
//!
//! | design | a run beside others | a run alone | a record after the commit |
//! |---|---|---|---|
//! | `Listed` | for each neighbour, to take it off the list, and to add the result | once | once, for the count |
//! | `ListedCountApart` | as above | once | never |
//! | `MergedFirst` | only to take off the second neighbour | once | never |

use super::locks;
use super::place::Place;
use crate::design;
use nextent::lab_seams::alloc::buddy::Run;
use nextent_num::{must_fit, to_usize};
use nextent_ondisk::{GroupNo, Tid};
use nextent_sync::atomic::{AtomicI64, AtomicU32, Ordering};
use nextent_sync::{Arc, CachePadded, KindMutex, LockKind, computes};
use std::collections::BTreeMap;

/// A run that was freed.
pub(super) struct Record {
    group: GroupNo,
    tid: Tid,
    /// `[historical.group]`; relaxed.
    start: AtomicU32,
    /// `[historical.group]`; relaxed. Zero once the record means nothing any more.
    n: AtomicU32,
    /// Its place in its list. `[historical.md]`; relaxed.
    slot: AtomicU32,
}

impl Record {
    fn new(group: GroupNo, tid: Tid, (start, n): Run) -> Arc<Self> {
        let [start, n, slot] = [start, n, 0].map(AtomicU32::new);
        Arc::new(Self { group, tid, start, n, slot })
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
pub(super) type Tree = BTreeMap<u32, Arc<Record>>;

/// What the lock of the lists guards. `[historical.md]`
#[derive(Default)]
pub(super) struct Md {
    /// The goal that all large files share, in designs that have one.
    pub(super) goal: Option<Place>,
    lists: [Vec<Option<Arc<Record>>>; 2],
    pending: i64,
}

impl Md {
    fn add(&mut self, record: &Arc<Record>) {
        let list = &mut self.lists[to_usize(record.tid.0) % 2];
        record.slot.store(must_fit(list.len()), Ordering::Relaxed);
        list.push(Some(record.clone()));
    }

    fn remove(&mut self, record: &Record) {
        let slot = to_usize(record.slot.load(Ordering::Relaxed));
        self.lists[to_usize(record.tid.0) % 2][slot] = None;
    }
}

/// All that was freed and is not yet durable.
pub(super) struct Freed {
    how: design::Freed,
    pub(super) md: CachePadded<KindMutex<Md>>,
    /// Clusters in the lists, in designs that count them apart. Relaxed: a count.
    pending: CachePadded<AtomicI64>,
}

impl Freed {
    pub(super) fn new(how: design::Freed, kind: LockKind) -> Self {
        Self {
            how,
            md: CachePadded::new(KindMutex::of_kind(kind, &locks::MD, Md::default())),
            pending: CachePadded::new(AtomicI64::new(0)),
        }
    }

    /// Whether clusters wait for a commit.
    pub(super) fn has_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > 0 || self.md.lock().pending > 0
    }

    /// Notes that `tid` has freed a run; the caller holds the group's lock, which guards `tree`.
    ///
    /// # Errors
    /// The first cluster that is noted already.
    pub(super) fn add(
        &self,
        tree: &mut Tree,
        group: GroupNo,
        tid: Tid,
        run: Run,
    ) -> Result<(), u32> {
        // Counted by callgrind.
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
        // Only what is joined is counted as used: that stores to a record that others have made.
        let ends_here = |left: &&Arc<Record>| left.run().0 + left.run().1 == run.0;
        let left = left.filter(|left| left.tid == tid).filter(ends_here).cloned();
        let begins_here = |right: &&Arc<Record>| right.run().0 == run.0 + run.1;
        let right = right.filter(|right| right.tid == tid).filter(begins_here).cloned();
        if self.how == design::Freed::MergedFirst {
            self.grow_neighbour(tree, Record::new(group, tid, run), left, right);
        } else {
            self.absorb_neighbours(tree, Record::new(group, tid, run), left, right);
        }
        Ok(())
    }

    /// The new record takes in its neighbours, which leave their list, and is listed.
    fn absorb_neighbours(
        &self,
        tree: &mut Tree,
        new: Arc<Record>,
        left: Option<Arc<Record>>,
        right: Option<Arc<Record>>,
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

    /// A neighbour takes in the new run where there is one; only what enters or leaves a list
    /// takes the lock.
    fn grow_neighbour(
        &self,
        tree: &mut Tree,
        new: Arc<Record>,
        left: Option<Arc<Record>>,
        right: Option<Arc<Record>>,
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

    /// Takes all records of `tid`, which is durable.
    pub(super) fn take(&self, tid: Tid) -> Vec<Arc<Record>> {
        let list = std::mem::take(&mut self.md.lock().lists[to_usize(tid.0) % 2]);
        list.into_iter().flatten().collect()
    }

    /// Counts a record that [`Self::take`] returned off, before its group's lock is taken.
    pub(super) fn count_off(&self, n: u32) {
        if self.how == design::Freed::Listed {
            self.md.lock().pending -= i64::from(n);
        } else {
            self.pending.fetch_sub(i64::from(n), Ordering::Relaxed);
        }
    }

    /// Forgets that a range was freed, for replay, which may use it again at once. The caller
    /// holds the group's lock.
    pub(super) fn forget(&self, tree: &mut Tree, group: GroupNo, (start, n): Run) {
        let end = start + n;
        let touched: Vec<Arc<Record>> = tree
            .range(..end)
            .map(|(_, record)| record.clone())
            .filter(|record| record.run().0 + record.run().1 > start)
            .collect();
        for record in touched {
            let (from, len) = record.run();
            let to = from + len;
            tree.remove(&from);
            self.md.lock().remove(&record);
            self.count_off(len);
            for part in [(from, start.saturating_sub(from)), (end, to.saturating_sub(end))] {
                if part.1 > 0 {
                    let kept = self.add(tree, group, record.tid, part);
                    debug_assert!(kept.is_ok(), "what is left of a record is noted once");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupNo = GroupNo(3);

    fn runs(tree: &Tree) -> Vec<Run> {
        tree.values().map(|record| record.run()).collect()
    }

    fn taken(freed: &Freed, tid: Tid) -> Vec<Run> {
        let records = freed.take(tid);
        records.iter().for_each(|record| freed.count_off(record.run().1));
        let mut runs: Vec<Run> = records.iter().map(|record| record.run()).collect();
        runs.sort_unstable();
        runs
    }

    #[test]
    fn neighbours_of_one_transaction_become_one_record() {
        use design::Freed::{Listed, ListedCountApart, MergedFirst};
        for how in [Listed, ListedCountApart, MergedFirst] {
            let (freed, mut tree) = (Freed::new(how, LockKind::Sleep), Tree::new());
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
    fn what_is_used_again_is_forgotten() {
        for how in [design::Freed::Listed, design::Freed::MergedFirst] {
            let (freed, mut tree) = (Freed::new(how, LockKind::Sleep), Tree::new());
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
