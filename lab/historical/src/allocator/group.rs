//! The groups of the mballoc designs, and the hashed locks over them.
//!
//! A lock guards all of the groups that fall on it: buddy, bitmap, freed runs
//! and what is set aside. What searches look at without a lock are a few words
//! in the group itself.
//!
//! Identity, in clusters, under the lock: clear bits of `live` = buddy + set
//! aside + in `freed` + being trimmed + taken by a thread that has not yet set
//! its bits, or has cleared them and not yet noted that they are freed.

use super::chunks::Chunks;
use super::freed::Tree;
use super::locks;
use super::orders::{self, By, Entry, Orders};
use super::space::GROUP_LOCKS;
use nextent::lab_seams::alloc::{CommittedDesc, Core, bits, buddy::Run};
use nextent_num::{must_fit, to_usize};
use nextent_ondisk::{Geometry, GroupNo, Tid, bitmap};
use nextent_store::{BlockRef, Handle};
use nextent_sync::atomic::{AtomicU32, Ordering};
use nextent_sync::{Arc, CachePadded, KindMutex, KindMutexGuard, LockKind, sums, writes};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

/// No chunk of any order is free.
const NO_ORDER: u32 = u32::MAX;

/// What is known of a group without its lock.
#[repr(align(128))]
pub(super) struct Info {
    pub(super) no: GroupNo,
    pub(super) len: u32,
    pub(super) desc: Arc<CommittedDesc>,
    pub(super) bitmap: BlockRef,
    /// Relaxed hints, stored under the group's lock.
    free: AtomicU32,
    fragments: AtomicU32,
    largest: AtomicU32,
    /// Users of the buddy's two pages and of the bitmap's buffer. Relaxed: nobody waits for them.
    pages: [CachePadded<AtomicU32>; 2],
    buffer: CachePadded<AtomicU32>,
    /// Where the original has the links of its lists of groups: beside the counts of chunks by
    /// order, which every change stores to. Relaxed: of no meaning.
    links: CachePadded<AtomicU32>,
}

/// A use of a group's buddy, which keeps its pages where they are.
pub(super) struct Loaded<'a>(&'a Info);

impl Drop for Loaded<'_> {
    fn drop(&mut self) {
        for page in &self.0.pages {
            page.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Info {
    pub(super) fn new(no: GroupNo, len: u32, desc: Arc<CommittedDesc>, bitmap: BlockRef) -> Self {
        let [free, fragments, largest] = [0, 0, NO_ORDER].map(AtomicU32::new);
        let [one, other, buffer, links] = [0; 4].map(|none| CachePadded::new(AtomicU32::new(none)));
        let pages = [one, other];
        Self { no, len, desc, bitmap, free, fragments, largest, pages, buffer, links }
    }

    /// Finds the buddy's pages, as the original does before it takes the lock.
    pub(super) fn load(&self) -> Loaded<'_> {
        for page in &self.pages {
            page.fetch_add(1, Ordering::Relaxed);
        }
        Loaded(self)
    }

    /// Comes to the group in a list, as the original does: by the links in it.
    pub(super) fn come_by_list(&self) {
        self.links.load(Ordering::Relaxed);
    }

    /// Uses the bitmap's buffer while `work` changes it.
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

    /// Clusters of a free run on average.
    pub(super) fn average(&self) -> u32 {
        self.free().checked_div(self.fragments.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Whether a chunk of `order` is free.
    pub(super) fn has_order(&self, order: usize) -> bool {
        let largest = self.largest.load(Ordering::Relaxed);
        largest != NO_ORDER && to_usize(largest) >= order
    }
}

/// Everything about a group that its lock guards. `[historical.group]`
pub(super) struct State {
    pub(super) info: Arc<Info>,
    pub(super) buddy: Chunks,
    /// The bitmap of the running transaction, as words and as the bytes that are summed.
    live: Vec<u64>,
    bytes: Vec<u8>,
    /// The descriptor's free count and sum in the running transaction, kept as the original keeps
    /// them; a commit counts and sums what it writes by itself.
    desc_free: u32,
    desc_sum: u32,
    pub(super) freed: Tree,
    /// What is set aside for files, by first cluster.
    pub(super) aside: BTreeMap<u32, u32>,
    /// Raised when all of it is taken back at once.
    pub(super) epoch: u32,
    pub(super) trimming: Option<Run>,
    dirty: Option<Tid>,
    frozen: Option<(Tid, Vec<u64>)>,
    rendered_free: u32,
    largest: Entry,
    average: Entry,
}

impl State {
    /// The group `info` with the bitmap `bytes`.
    pub(super) fn new(info: Arc<Info>, bytes: Vec<u8>) -> Self {
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
            freed: Tree::new(),
            aside: BTreeMap::new(),
            epoch: 0,
            trimming: None,
            dirty: None,
            frozen: None,
            rendered_free: free,
            largest: Entry::default(),
            average: Entry::default(),
        }
    }

    /// Tells searches what the buddy has, after it has changed.
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
        orders.place(By::Largest, info.no.0, largest, &mut self.largest);
        orders.place(By::Average, info.no.0, average, &mut self.average);
    }

    /// Says that `tid` is about to change the bitmap; true if it is the first change in `tid`.
    fn begin(&mut self, tid: Tid) -> bool {
        if self.dirty == Some(tid) {
            return false;
        }
        if let Some(older) = self.dirty.replace(tid) {
            self.frozen = Some((older, self.live.clone()));
        }
        true
    }

    /// The bitmap at the end of `tid` and how many more clusters are free in it than in the one
    /// rendered before, if `tid` changed it and was not rendered.
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

/// A lock and the groups on it.
#[derive(Default)]
struct Shelf(Vec<Option<Box<State>>>);

/// The hashed locks.
pub(super) struct Locks {
    shelves: Box<[CachePadded<KindMutex<Shelf>>]>,
    /// How often one was found to be held of late, as the original counts that: up for each that is
    /// waited for, down for each that is free, from nothing to [`MOST_BUSY`]. Relaxed: a hint.
    busy: CachePadded<AtomicU32>,
}

/// Where the original stops counting.
const MOST_BUSY: u32 = 8;

/// A group under its lock.
pub(super) struct Held<'a> {
    shelf: KindMutexGuard<'a, Shelf>,
    index: usize,
}

impl Locks {
    pub(super) fn new(groups: u32, kind: LockKind) -> Self {
        let shelf = |i| {
            let groups = to_usize(groups).saturating_sub(i).div_ceil(GROUP_LOCKS);
            let states = (0..groups).map(|_| None).collect();
            CachePadded::new(KindMutex::of_kind(kind, &locks::GROUP, Shelf(states)))
        };
        let busy = CachePadded::new(AtomicU32::new(0));
        Self { shelves: (0..GROUP_LOCKS).map(shelf).collect(), busy }
    }

    fn of(&self, no: GroupNo) -> (&KindMutex<Shelf>, usize) {
        let no = to_usize(no.0);
        (&self.shelves[no % GROUP_LOCKS], no / GROUP_LOCKS)
    }

    /// Puts a group that was read under its lock.
    pub(super) fn put(&self, mut state: State, orders: &Orders) {
        let (shelf, index) = self.of(state.info.no);
        let mut shelf = shelf.lock();
        state.publish(orders);
        shelf.0[index] = Some(Box::new(state));
    }

    #[track_caller]
    pub(super) fn lock(&self, no: GroupNo) -> Held<'_> {
        if let Some(held) = self.try_lock(no) {
            return held;
        }
        self.count_busy(|busy| (busy < MOST_BUSY).then_some(busy + 1));
        let (shelf, index) = self.of(no);
        Held { shelf: shelf.lock(), index }.there()
    }

    #[track_caller]
    pub(super) fn try_lock(&self, no: GroupNo) -> Option<Held<'_>> {
        let (shelf, index) = self.of(no);
        let held = Held { shelf: shelf.try_lock()?, index }.there();
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

    /// Whether somebody holds the group's lock, without touching it.
    pub(super) fn looks_held(&self, no: GroupNo) -> bool {
        self.of(no).0.is_locked()
    }
}

impl Deref for Held<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        self.shelf.0[self.index].as_ref().expect("put there before its group was known")
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.shelf.0[self.index].as_mut().expect("put there before its group was known")
    }
}

/// What a change of a bitmap needs besides the group.
pub(super) struct Context<'c> {
    pub(super) core: &'c Core,
    pub(super) h: &'c Handle<'c>,
    /// Whether the bitmap is summed under the lock.
    pub(super) sums: bool,
}

impl Held<'_> {
    /// Tells of the way to what the lock guards: where that lies is said by the lock's own line.
    fn there(self) -> Self {
        self
    }

    /// Sets or clears bits of the bitmap, counts and sums: all that the original does between
    /// taking and dropping the group's lock. Runs `first` on the first change in a transaction.
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
        // What moves from core to core with the lock: the words that change, counts and sums, and
        // whatever of the bitmap others have changed since this core summed it.
        let words = to_usize(run.0 / 8)..(to_usize((run.0 + run.1).div_ceil(8)));
        writes(&state.bytes[words.start.min(state.bytes.len())..words.end.min(state.bytes.len())]);
        writes(&state.live[words.start / 8..words.end.div_ceil(8).min(state.live.len())]);
        writes(state);
        if cx.sums {
            let geo = &cx.core.geo;
            state.desc_sum = sums(&state.bytes, |bytes| sum(geo, bytes));
        }
    }
}

/// The checksum of a whole bitmap. Never inlined: what counts instructions knows it by its name,
/// for what a sum takes is no matter of their number.
#[inline(never)]
fn sum(geo: &Geometry, bytes: &[u8]) -> u32 {
    bitmap::block_checksum(geo, bytes)
}
