//! The operations of the mballoc designs: allocate, free, mark and trim.

use super::group::{Context, LockedGroup};
use super::group_pos::GroupPos;
use super::mballoc::{Group, Mballoc};
use super::prealloc::{self, FileState, Prealloc};
use super::scan::{Search, SearchRequest, Taken};
use super::space::Space;
use super::{Allocator, ClusterRequest, Found};
use crate::design;
use nextent::lab_seams::alloc::{BlockKind, Error, Result, Window, buddy::Run};
use nextent_ondisk::GroupNo;
use nextent_store::Handle;
use nextent_sync::{Arc, OnceLock};

/// Most recalls of all preallocations for one allocation.
const MOST_RECALLS: u32 = 3;

impl Mballoc {
    /// Searches. On failure, recalls all preallocations and searches again.
    fn search(&self, wanted: impl Fn() -> SearchRequest) -> Result<Option<Taken>> {
        self.read_groups_ahead()?;
        for _ in 0..MOST_RECALLS {
            let taken = Search::new(self, wanted()).run()?;
            if taken.is_some() || self.recall_all() == 0 {
                return Ok(taken);
            }
        }
        Search::new(self, wanted()).run()
    }

    /// Recalls the preallocations of all groups. Returns the number of clusters.
    #[cold]
    fn recall_all(&self) -> u32 {
        let mut recalled = 0;
        for group in self.loaded.iter().filter_map(OnceLock::get) {
            let mut held = self.lock(&group.info);
            let preallocated = std::mem::take(&mut held.preallocated);
            if preallocated.is_empty() {
                continue;
            }
            held.epoch = held.epoch.wrapping_add(1);
            for run in preallocated {
                recalled += run.1;
                held.buddy.give(run);
            }
            held.publish(&self.shared().orders);
        }
        recalled
    }

    /// Sets or clears bits in the bitmap under `held`.
    fn change(
        &self,
        held: &mut LockedGroup<'_>,
        group: &Arc<Group>,
        h: &Handle<'_>,
        run: Run,
        set: bool,
    ) {
        let cx = Context { core: self.core(), h, checksums: self.computes_checksums() };
        held.change(&cx, run, set, || {
            h.join(&group.info.bitmap);
            h.join(group.info.desc.block());
            h.dirty(group.clone());
        });
    }

    /// Sets the bits of a run that was taken from the buddy.
    fn set_bits(&self, h: &Handle<'_>, no: GroupNo, run: Run) -> Result<Found> {
        let group = self.group(no)?;
        group.info.with_buffer(h, || {
            let mut held = self.lock(&group.info);
            self.change(&mut held, group, h, run, true);
            drop(held);
            self.count_flex(no, -i64::from(run.1));
        });
        Ok((no, run))
    }

    /// Allocates up to `n` clusters of a preallocation. `None` if it was recalled.
    fn take_preallocated(&self, h: &Handle<'_>, pa: &Prealloc, n: u32) -> Result<Option<Found>> {
        let group = self.group(pa.group)?;
        let mut held = self.lock(&group.info);
        if held.epoch != pa.epoch || held.preallocated.remove(&pa.start) != Some(pa.n) {
            return Ok(None);
        }
        let run = (pa.start, n.min(pa.n));
        if let Some(rest) = pa.rest(run.1) {
            held.preallocated.insert(rest.start, rest.n);
        }
        self.change(&mut held, group, h, run, true);
        drop(held);
        self.count_flex(pa.group, -i64::from(run.1));
        Ok(Some((pa.group, run)))
    }

    fn release_preallocated(&self, pa: &Prealloc) {
        let mut held = self.shared().locks.lock(pa.group);
        if held.epoch == pa.epoch && held.preallocated.remove(&pa.start).is_some() {
            held.buddy.give((pa.start, pa.n));
            held.publish(&self.shared().orders);
        }
    }

    /// Allocates for a small file, from the preallocation of the caller's CPU.
    fn take_small(
        &self,
        h: &Handle<'_>,
        request: &ClusterRequest<'_>,
        goal: GroupPos,
    ) -> Result<Option<Found>> {
        let mut parts = self.localities.here();
        while let Some(pa) = prealloc::take_nearest(&mut parts, request.want, goal) {
            if let Some(found) = self.take_preallocated(h, &pa, request.want)? {
                if let Some(rest) = pa.rest(found.1.1) {
                    parts.push(rest);
                }
                return Ok(Some(found));
            }
        }
        let want = prealloc::for_small(&self.core().geo, request.want);
        let wanted = || SearchRequest { want, ..search_request(request, goal) };
        let Some(taken) = self.search(wanted)? else { return Ok(None) };
        if let Some(pa) = taken.preallocated {
            prealloc::add_part(&mut parts, pa).iter().for_each(|pa| self.release_preallocated(pa));
        }
        self.set_bits(h, taken.group, taken.run).map(Some)
    }

    /// Allocates for a file: from its preallocation, else by a search with a new preallocation.
    fn take_for_file(
        &self,
        h: &Handle<'_>,
        request: &mut ClusterRequest<'_>,
        goal: GroupPos,
    ) -> Result<Option<Found>> {
        let geo = &self.core().geo;
        let state = request
            .file
            .as_mut()
            .map(|window| window.replacement_state.get_or_default::<FileState>());
        let (before, own, preallocated) =
            state.map_or((0, None, None), |s| (s.clusters, s.goal, s.prealloc.take()));
        let after = before.saturating_add(request.want);
        let small = prealloc::is_small(geo, after);
        let written = request.kind == BlockKind::Data && request.file.is_some();
        let mut left = None;
        let mut found = None;
        if let Some(pa) = preallocated.filter(|pa| written && pa.n >= request.min) {
            if pa.pos() == goal {
                found = self.take_preallocated(h, &pa, request.want)?;
                left = found.and_then(|found| pa.rest(found.1.1));
            } else {
                self.release_preallocated(&pa);
            }
        } else if let Some(pa) = preallocated {
            self.release_preallocated(&pa);
        }
        let large = request.kind != BlockKind::Metadata && request.file.is_some() && !small;
        if found.is_none() && written && small {
            found = self.take_small(h, request, goal)?;
        } else if found.is_none() {
            let want =
                if written { prealloc::for_large(geo, before, request.want) } else { request.want };
            let wanted = || SearchRequest {
                want,
                try_goal: written,
                stream: large,
                own_goal: own,
                ..search_request(request, goal)
            };
            if let Some(taken) = self.search(wanted)? {
                left = taken.preallocated;
                found = Some(self.set_bits(h, taken.group, taken.run)?);
            }
        }
        if let (Some(window), Some((group, run))) = (request.file.as_mut(), found) {
            let state = window.replacement_state.get_or_default::<FileState>();
            state.prealloc = left;
            state.clusters = before.saturating_add(run.1);
            if large && self.design.goal == design::Goal::Inode {
                state.goal = Some(GroupPos { group, at: run.0 });
            }
        }
        Ok(found)
    }
}

/// The search for a request, without preallocation.
fn search_request(request: &ClusterRequest<'_>, goal: GroupPos) -> SearchRequest {
    SearchRequest {
        want: request.want,
        asked: request.want,
        min: request.min,
        goal,
        try_goal: false,
        stream: false,
        data: request.kind != BlockKind::Metadata,
        ino: request.ino,
        own_goal: None,
    }
}

impl Allocator for Mballoc {
    fn take(&self, h: &Handle<'_>, mut request: ClusterRequest<'_>) -> Result<Option<Found>> {
        let some = self.space.claim_some(request.want, request.min, request.privilege);
        let claimed = some.ok_or(Error::NoSpace)?;
        request.want = claimed;
        let goal = request.goal.unwrap_or(GroupPos { group: GroupNo(0), at: 0 });
        let found = self.take_for_file(h, &mut request, goal);
        let taken = found.as_ref().ok().and_then(Option::as_ref).map_or(0, |found| found.1.1);
        self.space.end_claim(claimed, taken);
        found
    }

    fn release(&self, file: &mut Window) {
        if let Some(state) = file.replacement_state.get::<FileState>() {
            state.clusters = 0;
            if let Some(pa) = state.prealloc.take() {
                self.release_preallocated(&pa);
            }
        }
    }

    fn free(&self, h: &Handle<'_>, no: GroupNo, run: Run) -> Result<Result<(), u32>> {
        let group = self.group(no)?;
        let _loaded = group.info.load();
        let clear = group.info.with_buffer(h, || {
            let mut held = self.lock(&group.info);
            if let Some(clear) = held.first(run, false) {
                return Some(clear);
            }
            self.change(&mut held, group, h, run, false);
            drop(held);
            self.count_flex(no, i64::from(run.1));
            None
        });
        if let Some(clear) = clear {
            return Ok(Err(clear));
        }
        let mut held = self.lock(&group.info);
        let recorded = self.shared().freed.add(&mut held.freed, no, h.tid(), run);
        drop(held);
        if recorded.is_ok() {
            self.space.give_volume(run.1);
        }
        Ok(recorded)
    }

    fn mark_used(&self, h: &Handle<'_>, no: GroupNo, run: Run) -> Result<u32> {
        let group = self.group(no)?;
        let mut held = self.lock(&group.info);
        self.shared().freed.forget(&mut held.freed, no, run);
        let mut marked = 0;
        while let Some(at) = held.first((run.0, run.1), false) {
            let end = held.first((at, run.0 + run.1 - at), true).unwrap_or(run.0 + run.1);
            let mut from = at;
            while from < end {
                let n = held.buddy.run_at(from, end - from);
                if n > 0 {
                    held.buddy.take((from, n));
                }
                from += n.max(1);
            }
            self.change(&mut held, group, h, (at, end - at), true);
            marked += end - at;
        }
        held.publish(&self.shared().orders);
        drop(held);
        self.count_flex(no, -i64::from(marked));
        self.space.end_claim(0, marked);
        Ok(marked)
    }

    fn is_free(&self, no: GroupNo, run: Run) -> Result<bool> {
        let group = self.group(no)?;
        Ok(self.lock(&group.info).first(run, true).is_none())
    }

    fn has_pending(&self) -> bool {
        self.shared().freed.has_pending()
    }

    fn space(&self) -> &Space {
        &self.space
    }

    fn start_trim(&self, no: GroupNo, from: u32, to: u32, min: u32) -> Result<Option<Run>> {
        let Some(info) = self.searchable(no, true)? else { return Ok(None) };
        if self.is_bad(no) {
            return Ok(None);
        }
        let mut held = self.lock(info);
        let mut at = from;
        while held.trimming.is_none() && at < to.min(info.len) {
            let Some((start, n)) = held.buddy.next_run(at) else { break };
            let n = n.min(to.saturating_sub(start));
            if n >= min.max(1) {
                held.buddy.take((start, n));
                held.trimming = Some((start, n));
                held.publish(&self.shared().orders);
                return Ok(held.trimming);
            }
            at = start + n.max(1);
        }
        Ok(None)
    }

    fn end_trim(&self, no: GroupNo) {
        let mut held = self.shared().locks.lock(no);
        if let Some(run) = held.trimming.take() {
            held.buddy.give(run);
            held.publish(&self.shared().orders);
        }
    }
}
