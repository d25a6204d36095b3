//! The allocators of ext4: a buddy for each group, under a lock that several groups share.
//!
//! | step | locks, in order |
//! |---|---|
//! | allocate: search, and take from the buddy | group (by lock or try-lock), under it the goal's and the orders' |
//! | allocate: bitmap, descriptor, checksums | group |
//! | free: bitmap, descriptor, checksums | group |
//! | free: add the record | group, under it the lists' |
//! | release of a record after its transaction is durable | the lists' in some designs; group |

use super::adapter;
use super::freed::Freed;
use super::goal::Goal;
use super::group::{GroupInfo, GroupState, LockedGroup, Locks};
use super::group_pos::GroupPos;
use super::orders::Orders;
use super::prealloc::Localities;
use super::space::Space;
use crate::design::{Design, Exclusion, OptimizeScan, Scan};
use nextent::lab_seams::alloc::{Core, Groups, Result, bits};
use nextent_num::{must_fit, to_usize};
use nextent_ondisk::{GroupNo, InodeNo, Tid};
use nextent_store::{Dirty, RenderSink};
use nextent_sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use nextent_sync::{Arc, OnceLock};

/// Least groups of a volume for searches by order.
const MANY_GROUPS: u32 = 16;
/// Groups that one allocation reads ahead, and the most of a volume.
const AHEAD: u32 = 32;
const MOST_AHEAD: u32 = 4096;

/// State that groups and searches share.
pub(super) struct SharedState {
    core: Arc<Core>,
    pub(super) locks: Locks,
    pub(super) orders: Orders,
    pub(super) freed: Freed,
    /// The last transaction whose records were released, marked. Relaxed: only commits use it.
    released: AtomicU64,
}

impl SharedState {
    /// Releases the records of the durable transaction `tid`, once for all groups.
    fn release_records(&self, tid: Tid) {
        let mark = 1 << 32 | u64::from(tid.0);
        if self.released.swap(mark, Ordering::Relaxed) == mark {
            return;
        }
        let discards = self.core.discard.load(Ordering::Relaxed);
        for record in self.freed.take(tid) {
            if discards {
                adapter::discard(&self.core, record.group(), record.run());
            }
            self.freed.subtract(record.run().1);
            let mut held = self.locks.lock(record.group());
            let run = record.run();
            held.freed.remove(&run.0);
            held.buddy.give(run);
            held.publish(&self.orders);
        }
    }
}

/// A group, for the commit.
pub(super) struct Group {
    pub(super) info: Arc<GroupInfo>,
    shared: Arc<SharedState>,
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
        self.shared.release_records(tid);
    }
}

/// The allocator of ext4, in one of its designs.
pub(super) struct Mballoc {
    groups: Arc<Groups>,
    shared: Arc<SharedState>,
    pub(super) loaded: Box<[OnceLock<Arc<Group>>]>,
    goal: Goal,
    pub(super) localities: Localities,
    /// Free clusters of flex groups, four to a cache line as in the original. Relaxed: counts.
    flex: Box<[[AtomicI64; 2]]>,
    pub(super) space: Space,
    /// The number of groups that were read ahead. Relaxed: a hint.
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
        let shared = Arc::new(SharedState {
            locks: Locks::new(count, design.locks),
            orders,
            freed: Freed::new(design.freed, design.locks),
            released: AtomicU64::new(0),
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

    pub(super) fn shared(&self) -> &SharedState {
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

    pub(super) fn searches_in_turn(&self) -> bool {
        self.design.scan == Scan::MapsInTurn
    }

    pub(super) fn trims_length(&self) -> bool {
        self.design.trims_length
    }

    pub(super) fn uses_try_lock(&self) -> bool {
        self.design.exclusion == Exclusion::TryGroups
    }

    #[track_caller]
    pub(super) fn lock(&self, info: &GroupInfo) -> LockedGroup<'_> {
        self.shared.locks.lock(info.no)
    }

    #[track_caller]
    pub(super) fn try_lock(&self, info: &GroupInfo) -> Option<LockedGroup<'_>> {
        self.shared.locks.try_lock(info.no)
    }

    pub(super) fn is_locked(&self, info: &GroupInfo) -> bool {
        self.shared.locks.is_locked(info.no)
    }

    /// The goal of a large file.
    pub(super) fn large_goal(&self, ino: InodeNo, own: Option<GroupPos>) -> Option<GroupPos> {
        self.goal.get(ino, own, &self.shared.freed.md)
    }

    pub(super) fn set_large_goal(&self, ino: InodeNo, pos: GroupPos) {
        self.goal.set(ino, pos, &self.shared.freed.md);
    }

    pub(super) fn loaded_info(&self, no: GroupNo) -> Option<&Arc<GroupInfo>> {
        self.loaded[to_usize(no.0)].get().map(|group| &group.info)
    }

    /// A group, which is read if necessary. The result of the first reader is used.
    pub(super) fn group(&self, no: GroupNo) -> Result<&Arc<Group>> {
        let slot = &self.loaded[to_usize(no.0)];
        if let Some(group) = slot.get() {
            return Ok(group);
        }
        match self.groups.read_blocks(no) {
            Ok((desc, bitmap, bytes)) => Ok(slot.get_or_init(|| {
                let len = self.core().geo.group_clusters(no);
                let info = Arc::new(GroupInfo::new(no, len, desc, bitmap));
                let state = GroupState::new(info.clone(), bytes);
                self.shared.locks.insert(state, &self.shared.orders);
                Arc::new(Group { info, shared: self.shared.clone() })
            })),
            Err(error) => slot.get().ok_or(error),
        }
    }

    /// A group to search: a loaded one, or any if `read`. `None` for a damaged or full group.
    pub(super) fn searchable(&self, no: GroupNo, read: bool) -> Result<Option<&Arc<GroupInfo>>> {
        if let Some(info) = self.loaded_info(no) {
            return Ok(Some(info));
        }
        let core = self.core();
        // The oldest design reads every group that it visits.
        let read = read || self.design.scan == Scan::Linear;
        let empty = core.group(no).free_clusters.load(Ordering::Relaxed) == 0;
        if !read || empty || core.is_bad(no) {
            return Ok(None);
        }
        let group = adapter::unless_damaged(core, no, self.group(no))?;
        Ok(group.map(|group| &group.info))
    }

    /// Reads the next groups that no allocation has visited. On a very large volume it stops early,
    /// because each group takes memory. Slow passes read the other groups when they visit them.
    pub(super) fn read_groups_ahead(&self) -> Result<()> {
        let count = self.count().min(MOST_AHEAD);
        if self.design.scan == Scan::Linear || self.read_ahead.load(Ordering::Relaxed) >= count {
            return Ok(());
        }
        let from = self.read_ahead.fetch_add(AHEAD, Ordering::Relaxed).min(count);
        for no in (from..count.min(from + AHEAD)).map(GroupNo) {
            self.searchable(no, true)?;
        }
        Ok(())
    }

    /// Whether bitmap checksums are computed under the groups' locks.
    pub(super) fn computes_checksums(&self) -> bool {
        self.design.sums_bitmaps && self.core().geo.features.metadata_csum()
    }

    /// Adds `n` free clusters to a group's flex group.
    pub(super) fn count_flex(&self, no: GroupNo, n: i64) {
        let flex = to_usize(self.core().geo.flex_group_of(no));
        self.flex[flex][0].fetch_add(n, Ordering::Relaxed);
    }
}
