//! The groups of the mballoc designs, and the hashed locks over them.
//!
//! A lock guards all groups with its hash: their buddies, bitmaps, freed runs and preallocations.
//! Searches read a few words of a group without the lock.
//!
//! Invariant under the lock: each cluster whose bit in `live` is clear is either in the buddy,
//! preallocated, in `freed`, in a trim, or in transition. A cluster is in transition if a thread
//! has taken it and not yet set its bit, or has cleared its bit and not yet recorded it in `freed`.

use super::chunks::Chunks;
use super::freed::FreedTree;
use super::locks;
use super::orders::{self, OrderEntry, OrderKey, Orders};
use super::space::GROUP_LOCKS;
use nextent::lab_seams::alloc::{CommittedDesc, Core, bits, buddy::Run};
use nextent_num::{must_fit, to_usize};
use nextent_ondisk::{Geometry, GroupNo, Tid, bitmap};
use nextent_store::{BlockRef, Handle};
use nextent_sync::atomic::{AtomicU32, Ordering};
use nextent_sync::{Arc, CachePadded, KindMutex, KindMutexGuard, LockKind, sums, writes};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

/// No chunk is free.
const NO_ORDER: u32 = u32::MAX;

/// The fields of a group that searches read without its lock.
#[repr(align(128))]
pub(super) struct GroupInfo {
    pub(super) no: GroupNo,
    pub(super) len: u32,
    pub(super) desc: Arc<CommittedDesc>,
    pub(super) bitmap: BlockRef,
    /// Relaxed hints, stored under the group's lock.
    free: AtomicU32,
    fragments: AtomicU32,
    largest: AtomicU32,
    /// Users of the buddy's two pages and of the bitmap's buffer. Relaxed: no thread waits for
    /// zero.
    pages: [CachePadded<AtomicU32>; 2],
    buffer: CachePadded<AtomicU32>,
    /// The original's links of its lists of groups, on the line of the counts of chunks by order,
    /// which every change stores to. Relaxed: the value is not used.
    links: CachePadded<AtomicU32>,
}

/// A reference to the pages of a group's buddy.
pub(super) struct BuddyRef<'a>(&'a GroupInfo);

impl Drop for BuddyRef<'_> {
    fn drop(&mut self) {
        for page in &self.0.pages {
            page.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl GroupInfo {
    pub(super) fn new(no: GroupNo, len: u32, desc: Arc<CommittedDesc>, bitmap: BlockRef) -> Self {
        let [free, fragments, largest] = [0, 0, NO_ORDER].map(AtomicU32::new);
        let [one, other, buffer, links] = [0; 4].map(|none| CachePadded::new(AtomicU32::new(none)));
        let pages = [one, other];
        Self { no, len, desc, bitmap, free, fragments, largest, pages, buffer, links }
    }

    /// Pins the buddy's pages, as the original does before it takes the lock.
    pub(super) fn load(&self) -> BuddyRef<'_> {
        for page in &self.pages {
            page.fetch_add(1, Ordering::Relaxed);
        }
        BuddyRef(self)
    }

    /// Follows the list's link to the group, as the original does.
    pub(super) fn follow_list_link(&self) {
        self.links.load(Ordering::Relaxed);
    }

    /// Pins the bitmap's buffer while `work` changes it.
    pub(super) fn with_buffer<R>(&self, h: &Handle<'_>, work: impl FnOnce() -> R) -> R {
        self.buffer.fetch_add(1, Ordering::Relaxed);
        h.look();
        let done = work();
        self.buffer.fetch_sub(1, Ordering::Relaxed);
        done
    }

    /// Clusters in the buddy.
    pub(super) fn free(&self) -> u32 {
        self.free.load(Ordering::Relaxed)
    }

    /// The average length of a free run, in clusters.
    pub(super) fn average(&self) -> u32 {
        self.free().checked_div(self.fragments.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Whether a chunk of `order` is free.
    pub(super) fn has_order(&self, order: usize) -> bool {
        let largest = self.largest.load(Ordering::Relaxed);
        largest != NO_ORDER && to_usize(largest) >= order
    }
}

/// The state of a group. `[historical.group]`
pub(super) struct GroupState {
    pub(super) info: Arc<GroupInfo>,
    pub(super) buddy: Chunks,
    /// The bitmap of the running transaction, as words and as bytes for the checksum.
    live: Vec<u64>,
    bytes: Vec<u8>,
    /// The descriptor's free count and checksum in the running transaction, as in the original. A
    /// commit computes those that it writes.
    desc_free: u32,
    desc_sum: u32,
    pub(super) freed: FreedTree,
    /// Preallocated runs by first cluster.
    pub(super) preallocated: BTreeMap<u32, u32>,
    /// Incremented when all preallocated runs are recalled.
    pub(super) epoch: u32,
    pub(super) trimming: Option<Run>,
    dirty: Option<Tid>,
    frozen: Option<(Tid, Vec<u64>)>,
    rendered_free: u32,
    largest: OrderEntry,
    average: OrderEntry,
}

impl GroupState {
    /// The group `info` with the bitmap `bytes`.
    pub(super) fn new(info: Arc<GroupInfo>, bytes: Vec<u8>) -> Self {
        let len = info.len;
        let mut live = vec![0; bits::word_count(len)];
        bits::load(&mut live, &bytes);
        let end = must_fit::<u32, _>(live.len()) * 64;
        bits::set(&mut live, len, end);
        let buddy = Chunks::from_used(len, &live);
        let free = buddy.free();
        Self {
            info,
            buddy,
            live,
            bytes,
            desc_free: free,
            desc_sum: 0,
            freed: FreedTree::new(),
            preallocated: BTreeMap::new(),
            epoch: 0,
            trimming: None,
            dirty: None,
            frozen: None,
            rendered_free: free,
            largest: OrderEntry::default(),
            average: OrderEntry::default(),
        }
    }

    /// Publishes the buddy's counts to searches after a change.
    pub(super) fn publish(&mut self, orders: &Orders) {
        let info = &self.info;
        let (free, fragments) = (self.buddy.free(), self.buddy.fragments());
        let largest = self.buddy.largest_order();
        writes(&self.buddy);
        info.free.store(free, Ordering::Relaxed);
        info.fragments.store(fragments, Ordering::Relaxed);
        let word = largest.map_or(NO_ORDER, |order| must_fit(order));
        info.largest.store(word, Ordering::Relaxed);
        info.links.store(free, Ordering::Relaxed);
        let average = free.checked_div(fragments).map(orders::of_average);
        orders.move_group(OrderKey::Largest, info.no.0, largest, &mut self.largest);
        orders.move_group(OrderKey::Average, info.no.0, average, &mut self.average);
    }

    /// Prepares a change of the bitmap by `tid`. Returns whether it is the first in `tid`.
    fn begin(&mut self, tid: Tid) -> bool {
        if self.dirty == Some(tid) {
            return false;
        }
        if let Some(older) = self.dirty.replace(tid) {
            self.frozen = Some((older, self.live.clone()));
        }
        true
    }

    /// The bitmap at the end of `tid`, and the increase of free clusters since the last rendered
    /// one. `None` if `tid` did not change it or was rendered.
    pub(super) fn render(&mut self, tid: Tid) -> Option<(Vec<u64>, i64)> {
        let len = self.info.len;
        let words = match self.frozen.take_if(|frozen| frozen.0 == tid) {
            Some((_, words)) => words,
            None => {
                self.dirty.take_if(|dirty| *dirty == tid)?;
                self.live.clone()
            }
        };
        let free = len - bits::count(&words, 0, len);
        let freed = i64::from(free) - i64::from(self.rendered_free);
        self.rendered_free = free;
        Some((words, freed))
    }

    /// The first clear, or set, bit of a range.
    pub(super) fn first(&self, (start, n): Run, set: bool) -> Option<u32> {
        let find = if set { bits::next_set } else { bits::next_clear };
        find(&self.live, start, start + n)
    }

    fn store_bytes(&mut self, (start, n): Run) {
        let (from, to) = (to_usize(start / 64), to_usize((start + n - 1) / 64) + 1);
        let end = (to * 8).min(self.bytes.len());
        bits::store(&self.live[from..to], &mut self.bytes[from * 8..end]);
    }
}

/// The groups of one lock.
#[derive(Default)]
struct LockedGroups(Vec<Option<Box<GroupState>>>);

/// The hashed locks.
pub(super) struct Locks {
    buckets: Box<[CachePadded<KindMutex<LockedGroups>>]>,
    /// The original's measure of contention: incremented by each wait, decremented by each
    /// uncontended lock, from 0 to [`MOST_BUSY`]. Relaxed: a hint.
    busy: CachePadded<AtomicU32>,
}

/// The original's maximum.
const MOST_BUSY: u32 = 8;

/// A group whose lock is held.
pub(super) struct LockedGroup<'a> {
    bucket: KindMutexGuard<'a, LockedGroups>,
    index: usize,
}

impl Locks {
    pub(super) fn new(groups: u32, kind: LockKind) -> Self {
        let bucket = |i| {
            let groups = to_usize(groups).saturating_sub(i).div_ceil(GROUP_LOCKS);
            let states = (0..groups).map(|_| None).collect();
            CachePadded::new(KindMutex::of_kind(kind, &locks::GROUP, LockedGroups(states)))
        };
        let busy = CachePadded::new(AtomicU32::new(0));
        Self { buckets: (0..GROUP_LOCKS).map(bucket).collect(), busy }
    }

    fn of(&self, no: GroupNo) -> (&KindMutex<LockedGroups>, usize) {
        let no = to_usize(no.0);
        (&self.buckets[no % GROUP_LOCKS], no / GROUP_LOCKS)
    }

    /// Inserts a group that was read.
    pub(super) fn insert(&self, mut state: GroupState, orders: &Orders) {
        let (bucket, index) = self.of(state.info.no);
        let mut bucket = bucket.lock();
        state.publish(orders);
        bucket.0[index] = Some(Box::new(state));
    }

    #[track_caller]
    pub(super) fn lock(&self, no: GroupNo) -> LockedGroup<'_> {
        if let Some(held) = self.try_lock(no) {
            return held;
        }
        self.count_busy(|busy| (busy < MOST_BUSY).then_some(busy + 1));
        let (bucket, index) = self.of(no);
        LockedGroup { bucket: bucket.lock(), index }
    }

    #[track_caller]
    pub(super) fn try_lock(&self, no: GroupNo) -> Option<LockedGroup<'_>> {
        let (bucket, index) = self.of(no);
        let held = LockedGroup { bucket: bucket.try_lock()?, index };
        self.count_busy(|busy| busy.checked_sub(1));
        Some(held)
    }

    /// Stores only if the count changes.
    fn count_busy(&self, change: impl Fn(u32) -> Option<u32>) {
        let mut busy = self.busy.load(Ordering::Relaxed);
        while let Some(next) = change(busy) {
            let (old, new) = (Ordering::Relaxed, Ordering::Relaxed);
            match self.busy.compare_exchange_weak(busy, next, old, new) {
                Ok(_) => return,
                Err(now) => busy = now,
            }
        }
    }

    /// Whether a thread holds the group's lock: a load without a store.
    pub(super) fn is_locked(&self, no: GroupNo) -> bool {
        self.of(no).0.is_locked()
    }
}

impl Deref for LockedGroup<'_> {
    type Target = GroupState;
    fn deref(&self) -> &GroupState {
        self.bucket.0[self.index].as_ref().expect("inserted before its group was published")
    }
}

impl DerefMut for LockedGroup<'_> {
    fn deref_mut(&mut self) -> &mut GroupState {
        self.bucket.0[self.index].as_mut().expect("inserted before its group was published")
    }
}

/// The context of a change of a bitmap.
pub(super) struct Context<'c> {
    pub(super) core: &'c Core,
    pub(super) h: &'c Handle<'c>,
    /// Whether the change computes the bitmap's checksum.
    pub(super) checksums: bool,
}

impl LockedGroup<'_> {
    /// Sets or clears bits, and updates counts and checksum: all work of the original under the
    /// group's lock. Runs `first` before the first change in a transaction.
    pub(super) fn change(&mut self, cx: &Context<'_>, run: Run, set: bool, first: impl FnOnce()) {
        let state = &mut **self;
        if state.begin(cx.h.tid()) {
            first();
        }
        if set {
            bits::set(&mut state.live, run.0, run.0 + run.1);
            state.desc_free = state.desc_free.saturating_sub(run.1);
        } else {
            bits::clear(&mut state.live, run.0, run.0 + run.1);
            state.desc_free += run.1;
        }
        state.store_bytes(run);
        // The data that moves between cores with the lock: changed words, counts and checksums, and
        // the words of the bitmap that other cores have changed since this core's last checksum.
        let words = to_usize(run.0 / 8)..(to_usize((run.0 + run.1).div_ceil(8)));
        writes(&state.bytes[words.start.min(state.bytes.len())..words.end.min(state.bytes.len())]);
        writes(&state.live[words.start / 8..words.end.div_ceil(8).min(state.live.len())]);
        writes(state);
        if cx.checksums {
            let geo = &cx.core.geo;
            state.desc_sum = sums(&state.bytes, |bytes| sum(geo, bytes));
        }
    }
}

/// The checksum of a whole bitmap. Never inlined: `xtask` excludes this function by its name from
/// the counts of instructions, because its instructions depend on the processor.
#[inline(never)]
fn sum(geo: &Geometry, bytes: &[u8]) -> u32 {
    bitmap::block_checksum(geo, bytes)
}
