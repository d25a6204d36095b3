//! Groups by order: that of their largest free chunk, and that of the average length of their free
//! runs.
//!
//! | form | groups of an order | a search | a change of a group's order |
//! |---|---|---|---|
//! | lists | in order of insertion | begins at the head, under the reader lock | takes the writer locks of both orders |
//! | maps | a bitmap by number | begins at any group, without a lock | takes the locks of both orders |
//!
//! A search may read stale orders. It checks the group again under the group's lock.

use super::locks;
use nextent::lab_seams::alloc::{bits, buddy::MAX_ORDER};
use nextent_num::{must_fit, to_usize};
use nextent_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use nextent_sync::{KindMutex, KindRwLock, LockKind};
use std::collections::BTreeMap;

const ORDERS: usize = MAX_ORDER + 1;

/// The key of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrderKey {
    /// The order of the largest free chunk.
    Largest,
    /// The order of the average free run.
    Average,
}

impl OrderKey {
    const fn index(self) -> usize {
        match self {
            Self::Largest => 0,
            Self::Average => 1,
        }
    }
}

/// The order of runs of `len` clusters on average.
pub(super) fn of_average(len: u32) -> usize {
    len.checked_ilog2().map_or(0, |order| to_usize(order).saturating_sub(1)).min(MAX_ORDER)
}

/// The entry of a group: its order, and its key in the list.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OrderEntry(Option<(usize, u64)>);

/// All groups by both orders.
pub(super) enum Orders {
    /// No orders: searches visit all groups.
    None,
    Lists([Box<[OrderList]>; 2]),
    Maps([Box<[OrderMap]>; 2]),
}

/// The groups of an order, by insertion.
pub(super) struct OrderList {
    /// `[historical.order-list]`
    members: KindRwLock<Members>,
    /// The number of groups; a search does not lock an empty list. Relaxed: a hint, stored under
    /// the lock.
    count: AtomicU32,
}

#[derive(Default)]
struct Members {
    next: u64,
    groups: BTreeMap<u64, u32>,
}

/// The groups of an order, by number.
pub(super) struct OrderMap {
    /// Held while a bit changes.
    lock: KindMutex<()>,
    /// The number of groups. Relaxed: a hint, stored under the lock.
    count: AtomicU32,
    /// Relaxed: hints; stored under the lock.
    groups: Box<[AtomicU64]>,
}

impl Orders {
    pub(super) fn lists(kind: LockKind) -> Self {
        let list = |_| OrderList {
            members: KindRwLock::of_kind(kind, &locks::ORDER_LIST, Members::default()),
            count: AtomicU32::new(0),
        };
        Self::Lists([(); 2].map(|()| (0..ORDERS).map(list).collect()))
    }

    pub(super) fn maps(groups: u32, kind: LockKind) -> Self {
        let words = bits::word_count(groups);
        let map = |_| OrderMap {
            lock: KindMutex::of_kind(kind, &locks::ORDER_MAP, ()),
            count: AtomicU32::new(0),
            groups: (0..words).map(|_| AtomicU64::new(0)).collect(),
        };
        Self::Maps([(); 2].map(|()| (0..ORDERS).map(map).collect()))
    }

    /// Moves a group to `order`, or removes it for `None`. The caller holds the group's lock, which
    /// guards `entry`. Stores nothing if the order is unchanged.
    pub(super) fn move_group(
        &self,
        by: OrderKey,
        group: u32,
        order: Option<usize>,
        entry: &mut OrderEntry,
    ) {
        if matches!(self, Self::None) || entry.0.map(|(order, _)| order) == order {
            return;
        }
        if let Some((old, key)) = entry.0.take() {
            match self {
                Self::None => {}
                Self::Lists(lists) => lists[by.index()][old].remove(key),
                Self::Maps(maps) => maps[by.index()][old].change(group, false),
            }
        }
        let Some(order) = order else { return };
        let key = match self {
            Self::None => 0,
            Self::Lists(lists) => lists[by.index()][order].push(group),
            Self::Maps(maps) => {
                maps[by.index()][order].change(group, true);
                0
            }
        };
        entry.0 = Some((order, key));
    }

    /// The first group of an order that `fits`: in a list from the head, in a map from `start`
    /// around the volume.
    pub(super) fn first(
        &self,
        by: OrderKey,
        order: usize,
        start: u32,
        fits: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        match self {
            Self::None => None,
            Self::Lists(lists) => lists[by.index()][order].find(fits),
            Self::Maps(maps) => {
                let map = &maps[by.index()][order];
                let around = map.walk(start, u32::MAX).chain(map.walk(0, start));
                around.into_iter().find(|&group| fits(group))
            }
        }
    }

    /// The groups of an order in `[from, to)`, by number; for maps only.
    pub(super) fn walk(
        &self,
        by: OrderKey,
        order: usize,
        from: u32,
        to: u32,
    ) -> impl Iterator<Item = u32> {
        let map = match self {
            Self::Maps(maps) => Some(&maps[by.index()][order]),
            _ => None,
        };
        map.into_iter().flat_map(move |map| map.walk(from, to))
    }
}

impl OrderList {
    /// Appends a group. Returns its key.
    fn push(&self, group: u32) -> u64 {
        let mut members = self.members.write();
        members.next += 1;
        let key = members.next;
        members.groups.insert(key, group);
        self.count.store(must_fit(members.groups.len()), Ordering::Relaxed);
        key
    }

    fn remove(&self, key: u64) {
        let mut members = self.members.write();
        members.groups.remove(&key);
        self.count.store(must_fit(members.groups.len()), Ordering::Relaxed);
    }

    /// The first group that `fits`, from the head.
    fn find(&self, fits: impl Fn(u32) -> bool) -> Option<u32> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.members.read().groups.values().copied().find(|&group| fits(group))
    }
}

impl OrderMap {
    fn change(&self, group: u32, add: bool) {
        let _guard = self.lock.lock();
        let word = &self.groups[to_usize(group) / 64];
        let bit = 1u64 << (group % 64);
        let count = self.count.load(Ordering::Relaxed);
        if add {
            word.fetch_or(bit, Ordering::Relaxed);
            self.count.store(count + 1, Ordering::Relaxed);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
            self.count.store(count - 1, Ordering::Relaxed);
        }
    }

    fn walk(&self, from: u32, to: u32) -> impl Iterator<Item = u32> {
        let empty = self.count.load(Ordering::Relaxed) == 0;
        let to = if empty { 0 } else { to.min(must_fit::<u32, _>(self.groups.len()) * 64) };
        bits::words(from.min(to), to).flat_map(|(word, mask)| {
            let mut left = self.groups[word].load(Ordering::Relaxed) & mask;
            std::iter::from_fn(move || {
                let bit = left.checked_ilog2().map(|_| left.trailing_zeros())?;
                left &= left - 1;
                Some(must_fit::<u32, _>(word) * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_begin_at_the_head_and_maps_at_the_start() {
        for orders in [Orders::lists(LockKind::Spin), Orders::maps(200, LockKind::Sleep)] {
            let mut entries = [OrderEntry::default(); 200];
            for group in [150, 3, 70] {
                let entry = &mut entries[group as usize];
                orders.move_group(OrderKey::Largest, group, Some(5), entry);
            }
            let first = |start| orders.first(OrderKey::Largest, 5, start, |_| true);
            match &orders {
                Orders::Lists(_) => assert_eq!((first(0), first(71)), (Some(150), Some(150))),
                _ => {
                    assert_eq!((first(0), first(71), first(151)), (Some(3), Some(150), Some(3)));
                    let walk = orders.walk(OrderKey::Largest, 5, 4, 150).collect::<Vec<_>>();
                    assert_eq!(walk, [70]);
                }
            }
            orders.move_group(OrderKey::Largest, 150, Some(6), &mut entries[150]);
            orders.move_group(OrderKey::Largest, 3, None, &mut entries[3]);
            assert_eq!(
                (first(0), orders.first(OrderKey::Largest, 6, 0, |_| true)),
                (Some(70), Some(150))
            );
            assert_eq!(orders.first(OrderKey::Average, 6, 0, |_| true), None);
        }
    }

    #[test]
    fn a_search_does_not_lock_an_empty_order() {
        let orders = Orders::lists(LockKind::Spin);
        let Orders::Lists(lists) = &orders else { unreachable!("they were made so") };
        // A search that took the lock would deadlock, or fail the check of lock ranks.
        let held = lists[OrderKey::Largest as usize][5].members.write();
        assert_eq!(orders.first(OrderKey::Largest, 5, 0, |_| true), None);
        drop(held);
        let mut entry = OrderEntry::default();
        orders.move_group(OrderKey::Largest, 7, Some(5), &mut entry);
        assert_eq!(orders.first(OrderKey::Largest, 5, 0, |_| true), Some(7));
        orders.move_group(OrderKey::Largest, 7, None, &mut entry);
        let held = lists[OrderKey::Largest as usize][5].members.write();
        assert_eq!(orders.first(OrderKey::Largest, 5, 0, |_| true), None);
        drop(held);
    }

    #[test]
    fn averages_have_orders() {
        let orders = [0, 1, 2, 3, 4, 8, 1 << 14, 1 << 20].map(of_average);
        assert_eq!(orders, [0, 0, 0, 0, 1, 2, 13, 13]);
    }
}
