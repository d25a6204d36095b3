//! The allocators of ext3: one cluster a call, found in the bitmap.
//!
//! | design | lock of allocate and free | claim of a bit | after a lost bit | counters |
//! |---|---|---|---|---|
//! | 2002 | the volume's lock | plain store | cannot happen | under that lock |
//! | 2003 | none | test-and-set | next group | one lock, taken for each bit |
//! | final | none | test-and-set; reads the journal's copy under the buffer's lock | same group | hashed locks; per-CPU counters |
//!
//! A search runs from the goal to its group's end, then from the group's start, then through the
//! other groups.

use super::bits::Bits;
use super::group_pos::GroupPos;
use super::locks;
use super::space::Space;
use super::{Allocator, ClusterRequest, Found, adapter};
use crate::design::{Design, Exclusion};
use nextent::lab_seams::alloc::{
    CommittedDesc, Core, Error, Groups, Result, Window, bits as words, buddy::Run,
};
use nextent_num::to_usize;
use nextent_ondisk::{GroupNo, Tid};
use nextent_store::{BlockRef, Dirty, Handle, RenderSink};
use nextent_sync::atomic::{AtomicU32, Ordering};
use nextent_sync::{Arc, LockKind, Mutex, MutexGuard, OnceLock, at_once};

/// How a bit is claimed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claim {
    Plain,
    Atomic,
    AtomicAndBuffer,
}

/// One group.
#[repr(align(128))]
struct Group {
    no: GroupNo,
    core: Arc<Core>,
    desc: Arc<CommittedDesc>,
    bitmap: BlockRef,
    bits: Bits,
    /// Free clusters, stored under the design's lock. Relaxed: a hint for searches.
    free: AtomicU32,
}

impl Group {
    fn begin(self: &Arc<Self>, h: &Handle<'_>) {
        self.bits.begin(h.tid(), || {
            h.join(&self.bitmap);
            h.join(self.desc.block());
            h.dirty(self.clone());
        });
    }
}

impl Dirty for Group {
    fn render(&self, tid: Tid, out: &mut RenderSink) -> nextent_store::Result<()> {
        let Some((image, freed)) = self.bits.render(tid) else { return Ok(()) };
        self.desc.blocks_changed(out, &self.bitmap, freed);
        let bytes = ..to_usize(self.bits.len().div_ceil(8));
        out.patch(&self.bitmap, |block| words::store(&image, &mut block[bytes]));
        Ok(())
    }

    fn committed(&self, tid: Tid) {
        if self.core.discard.load(Ordering::Relaxed) {
            let runs = self.bits.to_release(tid);
            runs.into_iter().for_each(|run| adapter::discard(&self.core, self.no, run));
        }
        self.bits.committed(tid);
    }
}

/// The allocator of ext3, in one of its designs.
pub(super) struct Ext3 {
    groups: Arc<Groups>,
    loaded: Box<[OnceLock<Arc<Group>>]>,
    claim: Claim,
    /// Held during every allocation and every free, if the design has it.
    whole: Option<Mutex<()>>,
    /// How the other locks wait; the volume's lock always sleeps.
    kind: LockKind,
    space: Space,
}

impl Ext3 {
    pub(super) fn new(groups: Arc<Groups>, design: &Design, space: Space) -> Self {
        let (claim, whole) = match design.exclusion {
            Exclusion::Bits => (Claim::Atomic, None),
            Exclusion::BitsAndBuffer => (Claim::AtomicAndBuffer, None),
            _ => (Claim::Plain, Some(Mutex::new(&locks::SUPER, ()))),
        };
        let loaded = (0..groups.core.geo.group_count).map(|_| OnceLock::new()).collect();
        Self { groups, loaded, claim, whole, kind: design.locks, space }
    }

    fn core(&self) -> &Arc<Core> {
        &self.groups.core
    }

    fn lock_whole(&self) -> Option<MutexGuard<'_, ()>> {
        self.whole.as_ref().map(Mutex::lock)
    }

    fn loaded(&self, no: GroupNo) -> Option<&Arc<Group>> {
        self.loaded[to_usize(no.0)].get()
    }

    /// A group, which is read if necessary. The result of the first reader is used.
    fn group(&self, no: GroupNo) -> Result<&Arc<Group>> {
        if let Some(group) = self.loaded(no) {
            return Ok(group);
        }
        let read = self.groups.read_blocks(no);
        let slot = &self.loaded[to_usize(no.0)];
        match read {
            Ok((desc, bitmap, bytes)) => Ok(slot.get_or_init(|| {
                let len = self.core().geo.group_clusters(no);
                let mut used = vec![0; words::word_count(len)];
                words::load(&mut used, &bytes);
                let bits = Bits::new(len, used, self.kind);
                let free = AtomicU32::new(bits.free_runs().iter().map(|run| run.1).sum());
                let core = self.core().clone();
                Arc::new(Group { no, core, desc, bitmap, bits, free })
            })),
            Err(error) => slot.get().ok_or(error),
        }
    }

    /// A group that may have free clusters. `None` for a damaged or full group.
    fn searchable(&self, no: GroupNo) -> Result<Option<&Arc<Group>>> {
        let core = self.core();
        let free = match self.loaded(no) {
            Some(group) => &group.free,
            None => &core.group(no).free_clusters,
        };
        if core.is_bad(no) || free.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        adapter::unless_damaged(core, no, self.group(no))
    }

    /// Finds and claims `n` clusters: in the goal's group first, then in all groups after it.
    fn search(&self, h: &Handle<'_>, n: u32, goal: GroupPos) -> Result<Option<Found>> {
        let count = self.core().geo.group_count;
        let mut no = goal.group;
        if let Some(group) = self.searchable(no)? {
            let len = group.bits.len();
            for (from, to) in [(goal.at, len), (0, len)] {
                if let Outcome::Taken(run) = self.in_group(h, group, n, from, to) {
                    return Ok(Some((no, run)));
                }
            }
        }
        // After a lost bit the search continues here; it does not restart at the goal.
        let mut left = count;
        while left > 0 {
            left -= 1;
            no = GroupNo((no.0 + 1) % count);
            let Some(group) = self.searchable(no)? else { continue };
            match self.in_group(h, group, n, 0, group.bits.len()) {
                Outcome::Taken(run) => return Ok(Some((no, run))),
                Outcome::Lost => left = count,
                Outcome::Full => {}
            }
        }
        Ok(None)
    }

    fn in_group(&self, h: &Handle<'_>, group: &Arc<Group>, n: u32, from: u32, to: u32) -> Outcome {
        let mut from = from;
        while let Some(at) = group.bits.find(n, from, to) {
            // Another thread may claim the bit between the search and the claim.
            at_once();
            group.begin(h);
            at_once();
            if self.claim(group, (at, n)) {
                return Outcome::Taken((at, n));
            }
            if self.claim != Claim::AtomicAndBuffer {
                return Outcome::Lost;
            }
            from = at + 1;
        }
        Outcome::Full
    }

    /// Claims all bits of a run, or none.
    fn claim(&self, group: &Group, (start, n): Run) -> bool {
        for at in start..start + n {
            let mine = group.bits.set(at);
            assert!(mine || self.claim != Claim::Plain, "a bit was set without the volume's lock");
            let kept = mine && {
                let _buffer = (self.claim == Claim::AtomicAndBuffer).then(|| group.bits.buffer());
                group.bits.keep_if_allowed(at)
            };
            if !kept {
                (start..at).for_each(|taken| group.bits.unset(taken));
                return false;
            }
        }
        true
    }
}

enum Outcome {
    Taken(Run),
    /// Another thread was faster.
    Lost,
    Full,
}

impl Allocator for Ext3 {
    fn take(&self, h: &Handle<'_>, request: ClusterRequest<'_>) -> Result<Option<Found>> {
        let _whole = self.lock_whole();
        let n = request.min;
        if !self.space.claim(n, request.privilege) {
            return Err(Error::NoSpace);
        }
        let goal = request.goal.unwrap_or(GroupPos { group: GroupNo(0), at: 0 });
        let found = self.search(h, n, goal);
        match &found {
            Ok(Some((no, _))) => {
                let group = self.group(*no)?;
                self.space.take(n, n, no.0, &group.free);
            }
            _ => self.space.end_claim(n, 0),
        }
        found
    }

    fn release(&self, _: &mut Window) {}

    fn free(&self, h: &Handle<'_>, no: GroupNo, run: Run) -> Result<Result<(), u32>> {
        let _whole = self.lock_whole();
        let group = self.group(no)?;
        if let Some(clear) = group.bits.first(run, false) {
            return Ok(Err(clear));
        }
        group.begin(h);
        let bits = run.0..run.0 + run.1;
        {
            let _buffer = (self.claim == Claim::AtomicAndBuffer).then(|| group.bits.buffer());
            bits.clone().for_each(|at| group.bits.hold(at));
        }
        for at in bits {
            if !group.bits.clear(at) {
                // Another thread frees the same block at the same time.
                self.space.give(at - run.0, no.0, &group.free);
                return Ok(Err(at));
            }
        }
        self.space.give(run.1, no.0, &group.free);
        Ok(Ok(()))
    }

    fn mark_used(&self, h: &Handle<'_>, no: GroupNo, (start, n): Run) -> Result<u32> {
        let _whole = self.lock_whole();
        let group = self.group(no)?;
        group.begin(h);
        let mut marked = 0;
        for at in start..start + n {
            if group.bits.set(at) {
                // Counted without regard to the reserves.
                self.space.mark(no.0, &group.free);
                marked += 1;
            }
        }
        Ok(marked)
    }

    fn is_free(&self, no: GroupNo, run: Run) -> Result<bool> {
        Ok(self.group(no)?.bits.first(run, true).is_none())
    }

    fn has_pending(&self) -> bool {
        self.loaded.iter().filter_map(OnceLock::get).any(|group| group.bits.has_pending())
    }

    fn space(&self) -> &Space {
        &self.space
    }

    fn start_trim(&self, no: GroupNo, from: u32, to: u32, min: u32) -> Result<Option<Run>> {
        let _whole = self.lock_whole();
        let group = adapter::unless_damaged(self.core(), no, self.group(no))?;
        Ok(group.and_then(|group| group.bits.start_trim(from, to, min)))
    }

    fn end_trim(&self, no: GroupNo) {
        if let Some(group) = self.loaded(no) {
            group.bits.end_trim();
        }
    }
}
