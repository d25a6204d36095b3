//! Allocating and freeing in the mballoc designs, step by step.

use super::group::{Context, Held};
use super::mballoc::{Group, Mballoc};
use super::place::Place;
use super::prealloc::{self, FileState, Pa};
use super::scan::{Search, Taken, Wanted};
use super::space::Space;
use super::{Allocator, Found, Wish};
use crate::design;
use nextent::lab_seams::alloc::{BlockKind, Error, Result, Window, buddy::Run};
use nextent_ondisk::GroupNo;
use nextent_store::Handle;
use nextent_sync::{Arc, OnceLock};

/// How often all that is set aside is taken back for one allocation.
const MOST_RECALLS: u32 = 3;

impl Mballoc {
    /// Searches; when there is nothing, takes back what is set aside and searches again.
    fn search(&self, wanted: impl Fn() -> Wanted) -> Result<Option<Taken>> {
        self.read_some_ahead()?;
        for _ in 0..MOST_RECALLS {
            let taken = Search::new(self, wanted()).run()?;
            if taken.is_some() || self.recall_all() == 0 {
                return Ok(taken);
            }
        }
        Search::new(self, wanted()).run()
    }

    /// Takes back what is set aside in all groups, and says how much that was.
    #[cold]
    fn recall_all(&self) -> u32 {
        let mut recalled = 0;
        for group in self.loaded.iter().filter_map(OnceLock::get) {
            let mut held = self.lock(&group.info);
            let aside = std::mem::take(&mut held.aside);
            if aside.is_empty() {
                continue;
            }
            held.epoch = held.epoch.wrapping_add(1);
            for run in aside {
                recalled += run.1;
                held.buddy.give(run);
            }
            held.publish(&self.shared().orders);
        }
        recalled
    }

    /// Sets or clears bits in the bitmap under `held`.
    fn change(&self, held: &mut Held<'_>, group: &Arc<Group>, h: &Handle<'_>, run: Run, set: bool) {
        let cx = Context { core: self.core(), h, sums: self.sums() };
        held.change(&cx, run, set, || {
            h.join(&group.info.bitmap);
            h.join(group.info.desc.block());
            h.dirty(group.clone());
        });
    }

    /// Second step of an allocation: the bitmap.
    fn put_in_use(&self, h: &Handle<'_>, no: GroupNo, run: Run) -> Result<Found> {
        let group = self.group(no)?;
        group.info.with_buffer(h, || {
            let mut held = self.lock(&group.info);
            self.change(&mut held, group, h, run, true);
            drop(held);
            self.count_flex(no, -i64::from(run.1));
        });
        Ok((no, run))
    }

    /// Takes up to `n` clusters of what is set aside; nothing if that was taken back.
    fn take_aside(&self, h: &Handle<'_>, pa: &Pa, n: u32) -> Result<Option<Found>> {
        let group = self.group(pa.group)?;
        let mut held = self.lock(&group.info);
        if held.epoch != pa.epoch || held.aside.remove(&pa.start) != Some(pa.n) {
            return Ok(None);
        }
        let run = (pa.start, n.min(pa.n));
        if let Some(rest) = pa.rest(run.1) {
            held.aside.insert(rest.start, rest.n);
        }
        self.change(&mut held, group, h, run, true);
        drop(held);
        self.count_flex(pa.group, -i64::from(run.1));
        Ok(Some((pa.group, run)))
    }

    fn give_aside(&self, pa: &Pa) {
        let mut held = self.shared().locks.lock(pa.group);
        if held.epoch == pa.epoch && held.aside.remove(&pa.start).is_some() {
            held.buddy.give((pa.start, pa.n));
            held.publish(&self.shared().orders);
        }
    }

    /// For a small file: from what the caller's CPU has.
    fn take_small(&self, h: &Handle<'_>, wish: &Wish<'_>, goal: Place) -> Result<Option<Found>> {
        let mut parts = self.localities.here();
        while let Some(pa) = prealloc::nearest(&mut parts, wish.want, goal) {
            if let Some(found) = self.take_aside(h, &pa, wish.want)? {
                if let Some(rest) = pa.rest(found.1.1) {
                    parts.push(rest);
                }
                return Ok(Some(found));
            }
        }
        let want = prealloc::for_small(&self.core().geo, wish.want);
        let wanted = || Wanted { want, ..wanted(wish, goal) };
        let Some(taken) = self.search(wanted)? else { return Ok(None) };
        if let Some(pa) = taken.aside {
            prealloc::keep(&mut parts, pa).iter().for_each(|pa| self.give_aside(pa));
        }
        self.put_in_use(h, taken.group, taken.run).map(Some)
    }

    /// For a file that is written: from what is set aside for it, else with a new part set aside.
    fn take_for_file(
        &self,
        h: &Handle<'_>,
        wish: &mut Wish<'_>,
        goal: Place,
    ) -> Result<Option<Found>> {
        let geo = &self.core().geo;
        let state =
            wish.file.as_mut().map(|window| window.replacement_state.get_or_default::<FileState>());
        let (before, own, aside) =
            state.map_or((0, None, None), |s| (s.clusters, s.goal, s.aside.take()));
        let after = before.saturating_add(wish.want);
        let small = prealloc::is_small(geo, after);
        let written = wish.kind == BlockKind::Data && wish.file.is_some();
        let mut left = None;
        let mut found = None;
        if let Some(pa) = aside.filter(|pa| written && pa.n >= wish.min) {
            if pa.place() == goal {
                found = self.take_aside(h, &pa, wish.want)?;
                left = found.and_then(|found| pa.rest(found.1.1));
            } else {
                self.give_aside(&pa);
            }
        } else if let Some(pa) = aside {
            self.give_aside(&pa);
        }
        let large = wish.kind != BlockKind::Metadata && wish.file.is_some() && !small;
        if found.is_none() && written && small {
            found = self.take_small(h, wish, goal)?;
        } else if found.is_none() {
            let want =
                if written { prealloc::for_large(geo, before, wish.want) } else { wish.want };
            let wanted = || Wanted {
                want,
                try_goal: written,
                stream: large,
                own_goal: own,
                ..wanted(wish, goal)
            };
            if let Some(taken) = self.search(wanted)? {
                left = taken.aside;
                found = Some(self.put_in_use(h, taken.group, taken.run)?);
            }
        }
        if let (Some(window), Some((group, run))) = (wish.file.as_mut(), found) {
            let state = window.replacement_state.get_or_default::<FileState>();
            state.aside = left;
            state.clusters = before.saturating_add(run.1);
            if large && self.design.goal == design::Goal::Inode {
                state.goal = Some(Place { group, at: run.0 });
            }
        }
        Ok(found)
    }
}

/// What a wish alone says of a search.
fn wanted(wish: &Wish<'_>, goal: Place) -> Wanted {
    Wanted {
        want: wish.want,
        asked: wish.want,
        min: wish.min,
        goal,
        try_goal: false,
        stream: false,
        data: wish.kind != BlockKind::Metadata,
        ino: wish.ino,
        own_goal: None,
    }
}

impl Allocator for Mballoc {
    fn take(&self, h: &Handle<'_>, mut wish: Wish<'_>) -> Result<Option<Found>> {
        let some = self.space.claim_some(wish.want, wish.min, wish.privilege);
        let claimed = some.ok_or(Error::NoSpace)?;
        wish.want = claimed;
        let goal = wish.goal.unwrap_or(Place { group: GroupNo(0), at: 0 });
        let found = self.take_for_file(h, &mut wish, goal);
        let taken = found.as_ref().ok().and_then(Option::as_ref).map_or(0, |found| found.1.1);
        self.space.settle(claimed, taken);
        found
    }

    fn release(&self, file: &mut Window) {
        if let Some(state) = file.replacement_state.get::<FileState>() {
            state.clusters = 0;
            if let Some(pa) = state.aside.take() {
                self.give_aside(&pa);
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
        let noted = self.shared().freed.add(&mut held.freed, no, h.tid(), run);
        drop(held);
        if noted.is_ok() {
            self.space.give_whole(run.1);
        }
        Ok(noted)
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
        self.space.settle(0, marked);
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
        let Some(info) = self.worth(no, true)? else { return Ok(None) };
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
