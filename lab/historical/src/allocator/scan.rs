//! The search of the mballoc designs: passes over the groups, stricter ones first.
//!
//! | pass | groups that it searches | run that it takes |
//! |---|---|---|
//! | `Power2` | those with a free chunk of the order; for powers of two only | the lowest chunk of the smallest order that fits |
//! | `Fast` | those whose average run is long enough | a run of at least the length |
//! | `BestAvail` | those whose average run is of an order up to three below, but not below the request | as `Fast`, of that order |
//! | `Slow` | those with enough free clusters | the best of up to 200 runs |
//! | `Any` | any, waiting for locks | as `Slow` |
//!
//! A search checks a group without its lock, and again under it.

use super::group::{GroupInfo, LockedGroup};
use super::group_pos::GroupPos;
use super::mballoc::Mballoc;
use super::orders::{self, OrderKey};
use super::prealloc::Prealloc;
use nextent::lab_seams::alloc::Result;
use nextent::lab_seams::alloc::buddy::{MAX_ORDER, Run};
use nextent_num::to_usize;
use nextent_ondisk::{GroupNo, InodeNo};

/// Runs after which a search ends with its best run.
const MOST_EXAMINED: u32 = 200;
/// Runs after which a search ends if its best run is long enough.
const ENOUGH_EXAMINED: u32 = 10;
/// Smallest order of a search by chunks.
const LEAST_ORDER: u32 = 1;
/// The most orders that `BestAvail` goes below the request.
const MOST_TRIMMED: u32 = 3;
/// Least groups of a flex group whose first group is for metadata.
const FLEX_FOR_DATA: u32 = 4;

/// A pass over the groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pass {
    Power2,
    Fast,
    BestAvail,
    Slow,
    Any,
}

impl Pass {
    fn next(self) -> Option<Self> {
        Some(match self {
            Self::Power2 => Self::Fast,
            Self::Fast => Self::BestAvail,
            Self::BestAvail => Self::Slow,
            Self::Slow => Self::Any,
            Self::Any => return None,
        })
    }

    fn is_cheap(self) -> bool {
        self < Self::Slow
    }
}

/// The arguments of a search, in clusters.
pub(super) struct SearchRequest {
    /// The length with the preallocation.
    pub(super) want: u32,
    /// The length that the caller requests.
    pub(super) asked: u32,
    pub(super) min: u32,
    pub(super) goal: GroupPos,
    /// Whether the search tries the goal itself first.
    pub(super) try_goal: bool,
    /// Whether the file is large, so that the search uses the goal of large files.
    pub(super) stream: bool,
    pub(super) data: bool,
    pub(super) ino: InodeNo,
    /// The goal in the inode.
    pub(super) own_goal: Option<GroupPos>,
}

/// A run that was taken from the buddy; its bits are not set yet.
pub(super) struct Taken {
    pub(super) group: GroupNo,
    pub(super) run: Run,
    pub(super) preallocated: Option<Prealloc>,
}

/// One search.
pub(super) struct Search<'s> {
    mb: &'s Mballoc,
    wanted: SearchRequest,
    /// The current length.
    want: u32,
    order: usize,
    /// The first group of each pass.
    start: GroupNo,
    best: Option<(GroupNo, Run)>,
    examined: u32,
    /// Whether the first run is accepted.
    first: bool,
}

enum Step {
    Taken(Taken),
    /// Continue with the next group.
    Next,
    /// End the pass: enough runs were examined.
    Break,
}

impl<'s> Search<'s> {
    pub(super) fn new(mb: &'s Mballoc, wanted: SearchRequest) -> Self {
        let (want, start) = (wanted.want, wanted.goal.group);
        let order = to_usize(want.max(1).ilog2());
        Self { mb, wanted, want, order, start, best: None, examined: 0, first: false }
    }

    /// Searches, and takes the result from its group's buddy.
    pub(super) fn run(mut self) -> Result<Option<Taken>> {
        if self.wanted.try_goal
            && let Some(taken) = self.at_goal()?
        {
            return Ok(Some(taken));
        }
        if self.wanted.stream
            && let Some(goal) = self.mb.large_goal(self.wanted.ino, self.wanted.own_goal)
            && goal.group.0 < self.mb.count()
        {
            self.start = goal.group;
            nextent_sync::leads_on();
        }
        let whole_chunks = self.want.is_power_of_two()
            && self.want.ilog2() >= LEAST_ORDER
            && self.order <= MAX_ORDER;
        let mut pass = Some(if whole_chunks { Pass::Power2 } else { Pass::Fast });
        while let Some(now) = pass {
            match self.pass(now)? {
                Step::Taken(taken) => return Ok(Some(taken)),
                Step::Next => pass = now.next(),
                Step::Break => break,
            }
        }
        self.take_best()
    }

    /// Takes the best run of an earlier group if it is still free, else any run.
    fn take_best(&mut self) -> Result<Option<Taken>> {
        let Some((no, (start, _))) = self.best.take() else { return Ok(None) };
        if let Some(info) = self.mb.searchable(no, true)? {
            let _loaded = info.load();
            let mut held = self.mb.lock(info);
            let n = held.buddy.run_at(start, self.want);
            if n >= self.wanted.min {
                return Ok(Some(self.take(&mut held, (start, n))));
            }
        }
        self.first = true;
        match self.pass(Pass::Any)? {
            Step::Taken(taken) => Ok(Some(taken)),
            _ => Ok(None),
        }
    }

    /// Takes the run at the goal; waits for its group's lock.
    fn at_goal(&mut self) -> Result<Option<Taken>> {
        let goal = self.wanted.goal;
        let Some(info) = self.mb.searchable(goal.group, true)? else { return Ok(None) };
        let _loaded = info.load();
        let mut held = self.mb.lock(info);
        let n = held.buddy.run_at(goal.at, self.want);
        Ok((n == self.want).then(|| self.take(&mut held, (goal.at, n))))
    }

    fn pass(&mut self, pass: Pass) -> Result<Step> {
        let by_order = self.mb.searches_by_order() && pass.is_cheap();
        match pass {
            Pass::BestAvail if !by_order || !self.mb.trims_length() || !self.wanted.data => {
                Ok(Step::Next)
            }
            _ if !by_order => self.all_groups(pass),
            _ if self.mb.searches_in_turn() => self.orders_in_turn(pass),
            _ => self.groups_by_order(pass),
        }
    }

    /// Searches every group, from the start around the volume.
    fn all_groups(&mut self, pass: Pass) -> Result<Step> {
        let count = self.mb.count();
        for no in (self.start.0..count).chain(0..self.start.0).map(GroupNo) {
            match self.scan(pass, no)? {
                Step::Next => {}
                done => return Ok(done),
            }
        }
        Ok(Step::Next)
    }

    /// Searches the start's group, then repeatedly the first group in the orders that fits. A group
    /// without success may be returned again.
    fn groups_by_order(&mut self, pass: Pass) -> Result<Step> {
        let mut no = Some(self.start);
        for _ in 0..self.mb.count() {
            let Some(group) = no else { break };
            match self.scan(pass, group)? {
                Step::Next => {}
                done => return Ok(done),
            }
            no = self.choose(pass);
        }
        self.want = self.wanted.want;
        Ok(Step::Next)
    }

    fn choose(&mut self, pass: Pass) -> Option<GroupNo> {
        let start = self.start.0;
        let orders = &self.mb.shared().orders;
        if pass != Pass::BestAvail {
            let (by, from) = self.orders_of(pass);
            let fits = |no| self.may_fit(pass, GroupNo(no));
            let found = (from..=MAX_ORDER).find_map(|order| orders.first(by, order, start, fits));
            return found.map(GroupNo);
        }
        for len in self.trimmed_lengths() {
            self.want = len;
            let fits = |no| self.may_fit(pass, GroupNo(no));
            let order = orders::of_average(len);
            if let Some(no) = orders.first(OrderKey::Average, order, start, fits) {
                return Some(GroupNo(no));
            }
        }
        None
    }

    fn orders_of(&self, pass: Pass) -> (OrderKey, usize) {
        match pass {
            Pass::Power2 => (OrderKey::Largest, self.order),
            _ => (OrderKey::Average, orders::of_average(self.want)),
        }
    }

    /// Searches all orders from the start's group to the volume's end, then all before that group.
    fn orders_in_turn(&mut self, pass: Pass) -> Result<Step> {
        if pass != Pass::BestAvail {
            let (by, from) = self.orders_of(pass);
            return self.walk(pass, by, from..=MAX_ORDER);
        }
        for len in self.trimmed_lengths() {
            self.want = len;
            let order = orders::of_average(len);
            match self.walk(pass, OrderKey::Average, order..=order)? {
                Step::Next => {}
                done => return Ok(done),
            }
        }
        self.want = self.wanted.want;
        Ok(Step::Next)
    }

    fn walk(
        &mut self,
        pass: Pass,
        by: OrderKey,
        orders: std::ops::RangeInclusive<usize>,
    ) -> Result<Step> {
        let mb = self.mb;
        for (from, to) in [(self.start.0, mb.count()), (0, self.start.0)] {
            for order in orders.clone() {
                for no in mb.shared().orders.walk(by, order, from, to) {
                    match self.scan(pass, GroupNo(no))? {
                        Step::Next => {}
                        done => return Ok(done),
                    }
                }
            }
        }
        Ok(Step::Next)
    }

    /// Powers of two below the wanted length, three at most, none below the request.
    fn trimmed_lengths(&self) -> impl Iterator<Item = u32> + use<> {
        let (want, asked) = (self.wanted.want, self.wanted.asked);
        let top = want.ilog2();
        let orders = (top.saturating_sub(MOST_TRIMMED)..=top).rev();
        orders.map(|order| 1 << order).filter(move |len| (asked..=want).contains(len))
    }

    /// Whether a group may fit, by a check without its lock.
    fn may_fit(&self, pass: Pass, no: GroupNo) -> bool {
        let held = |info: &GroupInfo| self.mb.uses_try_lock() && self.mb.is_locked(info);
        let Some(info) = self.mb.loaded_info(no) else { return false };
        info.follow_list_link();
        !held(info) && self.fits(pass, info)
    }

    fn fits(&self, pass: Pass, info: &GroupInfo) -> bool {
        if info.free() == 0 || self.mb.is_bad(info.no) {
            return false;
        }
        let flex = self.mb.flex_groups();
        let for_metadata = flex >= FLEX_FOR_DATA && info.no.0.is_multiple_of(flex);
        match pass {
            Pass::Power2 => info.has_order(self.order) && !(self.wanted.data && for_metadata),
            Pass::Fast | Pass::BestAvail => info.average() >= self.want,
            Pass::Slow => info.free() >= self.want,
            Pass::Any => true,
        }
    }

    /// Searches a group.
    fn scan(&mut self, pass: Pass, no: GroupNo) -> Result<Step> {
        let mb = self.mb;
        let try_only = mb.uses_try_lock() && pass != Pass::Any;
        let Some(info) = mb.searchable(no, !pass.is_cheap())? else { return Ok(Step::Next) };
        if try_only && mb.is_locked(info) || !self.fits(pass, info) {
            return Ok(Step::Next);
        }
        let _loaded = info.load();
        let held = if try_only { mb.try_lock(info) } else { Some(mb.lock(info)) };
        let Some(mut held) = held else { return Ok(Step::Next) };
        if !self.fits(pass, info) {
            return Ok(Step::Next);
        }
        if pass == Pass::Power2 {
            let found = held.buddy.find_order(self.order);
            let taken = found.map(|start| self.take(&mut held, (start, self.want)));
            return Ok(taken.map_or(Step::Next, Step::Taken));
        }
        Ok(self.all_runs(pass, &mut held))
    }

    /// Examines the free runs of a group.
    fn all_runs(&mut self, pass: Pass, held: &mut LockedGroup<'_>) -> Step {
        let no = held.info.no;
        let mut at = 0;
        while let Some(run) = held.buddy.next_run(at) {
            at = run.0 + run.1;
            if run.1 < self.wanted.min || pass.is_cheap() && run.1 < self.want {
                continue;
            }
            self.examined += 1;
            if run.1 == self.want || self.first {
                return Step::Taken(self.take(held, run));
            }
            self.update_best(no, run);
            let enough = self.best_here(no);
            match enough {
                Some(run) if self.examined > ENOUGH_EXAMINED => {
                    return Step::Taken(self.take(held, run));
                }
                _ if self.examined > MOST_EXAMINED => return Step::Break,
                _ => {}
            }
        }
        self.best_here(no).map_or(Step::Next, |run| Step::Taken(self.take(held, run)))
    }

    /// The best run, if it is in this group and long enough.
    fn best_here(&self, no: GroupNo) -> Option<Run> {
        self.best.filter(|best| best.0 == no && best.1.1 >= self.want).map(|best| best.1)
    }

    /// Updates the best run: the shortest that is long enough, else the longest.
    fn update_best(&mut self, no: GroupNo, run: Run) {
        let better = self.best.is_none_or(|(_, (_, best))| {
            if best < self.want { run.1 > best } else { (self.want..best).contains(&run.1) }
        });
        if better {
            self.best = Some((no, run));
        }
    }

    /// Takes the start of a run from the buddy. Preallocates the part beyond the request.
    fn take(&self, held: &mut LockedGroup<'_>, (start, n): Run) -> Taken {
        // Copy the number: a clone of the group's `Arc` would be counted under the lock.
        let group = held.info.no;
        let n = n.min(self.want);
        let asked = n.min(self.wanted.asked);
        held.buddy.take((start, n));
        let preallocated = (n > asked).then(|| {
            held.preallocated.insert(start + asked, n - asked);
            Prealloc { group, start: start + asked, n: n - asked, epoch: held.epoch }
        });
        if self.wanted.stream {
            self.mb.set_large_goal(self.wanted.ino, GroupPos { group, at: start });
        }
        held.publish(&self.mb.shared().orders);
        Taken { group, run: (start, asked), preallocated }
    }
}
