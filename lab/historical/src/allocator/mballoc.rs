//! The allocators of ext4: a buddy for each group, under a lock that several
//! groups share.
//!
//! | step | locks, in order |
//! |---|---|
//! | allocate: find and take in the buddy | group (waited for, or tried), under it the goal's and the orders' |
//! | allocate: bitmap, descriptor, sums | group |
//! | free: bitmap, descriptor, sums | group |
//! | free: note the record | group, under it the lists' |
//! | each record, once its transaction is durable | the lists' in some designs; group |

use super::freed::Freed;
use super::front;
use super::goal::Goal;
use super::group::{Held, Info, Locks, State};
use super::orders::Orders;
use super::place::Place;
use super::prealloc::Localities;
use super::space::Space;
use crate::design::{Design, Exclusion, OptimizeScan, Scan};
use nextent::lab_seams::alloc::{Core, Groups, Result, bits};
use nextent_num::{must_fit, to_usize};
use nextent_ondisk::{GroupNo, InodeNo, Tid};
use nextent_store::{Dirty, RenderSink};
use nextent_sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use nextent_sync::{Arc, OnceLock};

/// Groups from which on searches go by order.
const MANY_GROUPS: u32 = 16;
/// Groups that are read ahead by one allocation, and of the volume at most.
const AHEAD: u32 = 32;
const MOST_AHEAD: u32 = 4096;

/// What groups and searches share.
pub(super) struct Shared {
    core: Arc<Core>,
    pub(super) locks: Locks,
    pub(super) orders: Orders,
    pub(super) freed: Freed,
    /// The last transaction whose records were given back, marked. Relaxed: the commit's own.
    given_back: AtomicU64,
}

impl Shared {
    /// Gives back what was freed in `tid`, which is durable; once for all groups.
    fn give_back(&self, tid: Tid) {
        let mark = 1 << 32 | u64::from(tid.0);
        if self.given_back.swap(mark, Ordering::Relaxed) == mark {
            return;
        }
        let discards = self.core.discard.load(Ordering::Relaxed);
        for record in self.freed.take(tid) {
            if discards {
                front::discard(&self.core, record.group(), record.run());
            }
            self.freed.count_off(record.run().1);
            let mut held = self.locks.lock(record.group());
            let run = record.run();
            held.freed.remove(&run.0);
            held.buddy.give(run);
            held.publish(&self.orders);
        }
    }
}

/// One group, as a commit sees it.
pub(super) struct Group {
    pub(super) info: Arc<Info>,
    shared: Arc<Shared>,
}

impl Dirty for Group {
    fn render(&self, tid: Tid, out: &mut RenderSink) -> nextent_store::Result<()> {
        let info = &self.info;
        let rendered = self.shared.locks.lock(info.no).render(tid);
        let Some((words, freed)) = rendered else { return Ok(()) };
        info.desc.blocks_changed(out, &info.bitmap, freed);
        let bytes = ..to_usize(info.len.div_ceil(8));
        out.patch(&info.bitmap, |block| bits::store(&words, &mut block[bytes]));
        Ok(())
    }

    fn committed(&self, tid: Tid) {
        self.shared.give_back(tid);
    }
}

/// The allocator of ext4, in one of its designs.
pub(super) struct Mballoc {
    groups: Arc<Groups>,
    shared: Arc<Shared>,
    pub(super) loaded: Box<[OnceLock<Arc<Group>>]>,
    goal: Goal,
    pub(super) localities: Localities,
    /// Free clusters of flex groups, four to a line as in the original. Relaxed: counts.
    flex: Box<[[AtomicI64; 2]]>,
    pub(super) space: Space,
    /// Groups that are read already, from the first. Relaxed: a hint.
    read_ahead: AtomicU32,
    by_order: bool,
    pub(super) design: Design,
}

impl Mballoc {
    pub(super) fn new(groups: Arc<Groups>, design: &Design, space: Space) -> Self {
        let core = groups.core.clone();
        let count = core.geo.group_count;
        let ordered = matches!(design.scan, Scan::Lists | Scan::Maps | Scan::MapsInTurn);
        let by_order = ordered
            && match design.optimize_scan {
                OptimizeScan::Off => false,
                OptimizeScan::On => true,
                OptimizeScan::BySize => count >= MANY_GROUPS,
            };
        let orders = match design.scan {
            _ if !by_order => Orders::None,
            Scan::Lists => Orders::lists(design.locks),
            _ => Orders::maps(count, design.locks),
        };
        let flex = count.div_ceil(core.geo.flex_groups);
        let shared = Arc::new(Shared {
            locks: Locks::new(count, design.locks),
            orders,
            freed: Freed::new(design.freed, design.locks),
            given_back: AtomicU64::new(0),
            core,
        });
        Self {
            loaded: (0..count).map(|_| OnceLock::new()).collect(),
            goal: Goal::new(design.goal, count),
            localities: Localities::new(),
            flex: (0..flex).map(|_| [0, 0].map(AtomicI64::new)).collect(),
            space,
            read_ahead: AtomicU32::new(0),
            by_order,
            design: *design,
            groups,
            shared,
        }
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.groups.core
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Number of groups.
    pub(super) fn count(&self) -> u32 {
        must_fit(self.loaded.len())
    }

    pub(super) fn flex_groups(&self) -> u32 {
        self.core().geo.flex_groups
    }

    pub(super) fn is_bad(&self, no: GroupNo) -> bool {
        self.core().is_bad(no)
    }

    pub(super) fn searches_by_order(&self) -> bool {
        self.by_order
    }

    pub(super) fn goes_in_turn(&self) -> bool {
        self.design.scan == Scan::MapsInTurn
    }

    pub(super) fn trims_length(&self) -> bool {
        self.design.trims_length
    }

    pub(super) fn tries(&self) -> bool {
        self.design.exclusion == Exclusion::TryGroups
    }

    #[track_caller]
    pub(super) fn lock(&self, info: &Info) -> Held<'_> {
        self.shared.locks.lock(info.no)
    }

    #[track_caller]
    pub(super) fn try_lock(&self, info: &Info) -> Option<Held<'_>> {
        self.shared.locks.try_lock(info.no)
    }

    pub(super) fn looks_held(&self, info: &Info) -> bool {
        self.shared.locks.looks_held(info.no)
    }

    /// Where large files go on.
    pub(super) fn large_goal(&self, ino: InodeNo, own: Option<Place>) -> Option<Place> {
        self.goal.get(ino, own, &self.shared.freed.md)
    }

    pub(super) fn set_large_goal(&self, ino: InodeNo, place: Place) {
        self.goal.set(ino, place, &self.shared.freed.md);
    }

    pub(super) fn loaded_info(&self, no: GroupNo) -> Option<&Arc<Info>> {
        self.loaded[to_usize(no.0)].get().map(|group| &group.info)
    }

    /// A group, read if need be; the first reader's result counts.
    pub(super) fn group(&self, no: GroupNo) -> Result<&Arc<Group>> {
        let slot = &self.loaded[to_usize(no.0)];
        if let Some(group) = slot.get() {
            return Ok(group);
        }
        match self.groups.read_blocks(no) {
            Ok((desc, bitmap, bytes)) => Ok(slot.get_or_init(|| {
                let len = self.core().geo.group_clusters(no);
                let info = Arc::new(Info::new(no, len, desc, bitmap));
                let state = State::new(info.clone(), bytes);
                self.shared.locks.put(state, &self.shared.orders);
                Arc::new(Group { info, shared: self.shared.clone() })
            })),
            Err(error) => slot.get().ok_or(error),
        }
    }

    /// A group to look into: one that is known already, or any, if it may be read for that. A
    /// damaged one is excluded.
    pub(super) fn worth(&self, no: GroupNo, read: bool) -> Result<Option<&Arc<Info>>> {
        if let Some(info) = self.loaded_info(no) {
            return Ok(Some(info));
        }
        let core = self.core();
        // The oldest design reads whatever it comes by.
        let read = read || self.design.scan == Scan::Linear;
        let empty = core.group(no).free_clusters.load(Ordering::Relaxed) == 0;
        if !read || empty || core.is_bad(no) {
            return Ok(None);
        }
        let group = front::unless_damaged(core, no, self.group(no))?;
        Ok(group.map(|group| &group.info))
    }

    /// Reads the next groups of the volume that no allocation has come to yet; of a very large one
    /// only the first, since each takes memory. Slow passes read the rest as they come to it.
    pub(super) fn read_some_ahead(&self) -> Result<()> {
        let count = self.count().min(MOST_AHEAD);
        if self.design.scan == Scan::Linear || self.read_ahead.load(Ordering::Relaxed) >= count {
            return Ok(());
        }
        let from = self.read_ahead.fetch_add(AHEAD, Ordering::Relaxed).min(count);
        for no in (from..count.min(from + AHEAD)).map(GroupNo) {
            self.worth(no, true)?;
        }
        Ok(())
    }

    /// Whether bitmaps are summed under their groups' locks.
    pub(super) fn sums(&self) -> bool {
        self.design.sums_bitmaps && self.core().geo.features.metadata_csum()
    }

    /// Counts free clusters of a group's flex group.
    pub(super) fn count_flex(&self, no: GroupNo, n: i64) {
        let flex = to_usize(self.core().geo.flex_group_of(no));
        self.flex[flex][0].fetch_add(n, Ordering::Relaxed);
    }
}
