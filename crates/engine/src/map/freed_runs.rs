//! Runs of blocks to free after they are unmapped, and the credits for freeing them.

use super::{BlockKind, MapCx};
use crate::error::Result;
use nextent_num::must_fit;
use nextent_ondisk::{BlockNo, Geometry, GroupNo};
use nextent_store::{Handle, REVOKES_PER_CREDIT as PER_REVOKE};

/// Most runs freed in one step. Bounds the credits and the stack space of a step.
const MAX_RUNS: usize = 48;

/// Credits for one group: its bitmap and the block of its descriptor.
pub(super) const GROUP_CREDITS: u32 = 2;

/// Credits for the runs of one step, if the transaction has so many.
pub(super) const STEP_CREDITS: u32 = 32;

/// Runs collected from the end of the file to its start, within a budget of credits.
pub(super) struct FreedRuns<'a> {
    items: [(u64, u32); MAX_RUNS],
    len: usize,
    budget: u32,
    blocks: u32,
    /// The freed blocks are metadata, so the journal writes revoke records for them.
    revokes: bool,
    geometry: &'a Geometry,
}

impl<'a> FreedRuns<'a> {
    /// An empty list. Its budget is the credits that `h` has, or can get, beyond `fixed`.
    pub(super) fn new(h: &Handle<'_>, cx: &MapCx<'a>, fixed: u32) -> Result<Self> {
        let want = fixed + STEP_CREDITS;
        let budget = if h.ensure(want)? { want } else { h.credits_left() };
        Ok(Self {
            items: [(0, 0); MAX_RUNS],
            len: 0,
            budget: budget.saturating_sub(fixed),
            blocks: 0,
            revokes: cx.contents == BlockKind::Metadata,
            geometry: cx.geometry,
        })
    }

    /// Adds as many blocks at the end of a run as the budget allows, and returns how many. A run
    /// over many groups, or with many blocks to revoke, needs several handles.
    pub(super) fn take(&mut self, start: BlockNo, len: u32) -> u32 {
        let (mut start, end, mut len) = (start.get(), start.get() + u64::from(len), len);
        let mut cost = self.cost(start, end);
        if cost > self.budget {
            len = self.affordable(start, end);
            start = end - u64::from(len);
            if len == 0 {
                return 0;
            }
            cost = self.cost(start, end);
        }
        match self.len.checked_sub(1).map(|i| self.items[i]) {
            Some((s, l)) if end == s => self.items[self.len - 1] = (start, l + len),
            _ if self.len == MAX_RUNS => return 0,
            _ => {
                self.items[self.len] = (start, len);
                self.len += 1;
            }
        }
        self.budget -= cost;
        self.blocks += len;
        len
    }

    /// How many blocks at the end of a run the budget allows.
    fn affordable(&self, start: u64, end: u64) -> u32 {
        let mut first = start;
        while first < end && self.cost(first, end) > self.budget {
            let next = self.geometry.group_first_block(GroupNo(self.group(first) + 1)).get();
            if next < end {
                first = next;
                continue;
            }
            // One group is left, so only its revoke records can exceed the budget.
            let paid = (self.blocks.div_ceil(PER_REVOKE) + self.budget)
                .saturating_sub(self.groups_cost(first, end));
            let most = u64::from((paid * PER_REVOKE).saturating_sub(self.blocks));
            let least = if self.revokes { end.saturating_sub(most) } else { end };
            first = first.max(least);
            break;
        }
        // A run's length has 32 bits, and so has that of each part.
        must_fit(end - first)
    }

    /// Credits for freeing one more run.
    fn cost(&self, start: u64, end: u64) -> u32 {
        let revokes =
            |blocks: u64| if self.revokes { blocks.div_ceil(PER_REVOKE.into()) } else { 0 };
        let before = u64::from(self.blocks);
        let more = revokes(before + (end - start)) - revokes(before);
        must_fit::<u32, _>(more).saturating_add(self.groups_cost(start, end))
    }

    /// Credits for the bitmaps and descriptors of one more run.
    fn groups_cost(&self, start: u64, end: u64) -> u32 {
        let (first, last) = (self.group(start), self.group(end - 1));
        let before = self.len.checked_sub(1).map(|i| self.items[i]);
        let known = before.is_some_and(|(s, _)| self.group(s) == last);
        (last - first + u32::from(!known)).saturating_mul(GROUP_CREDITS)
    }

    fn group(&self, block: u64) -> u32 {
        let group = block.saturating_sub(self.geometry.first_data_block.get())
            / u64::from(self.geometry.blocks_per_group);
        // The blocks were checked to lie on the volume, whose group numbers have 32 bits.
        must_fit(group)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of blocks in all runs.
    pub(super) fn blocks(&self) -> i64 {
        self.blocks.into()
    }

    /// Frees all runs, also after an error. Returns the first error.
    pub(super) fn free(self, cx: &MapCx<'_>, h: &Handle<'_>) -> Result<()> {
        let mut result = Ok(());
        for &(start, len) in &self.items[..self.len] {
            let freed = cx.space.free(h, BlockNo(start), len, cx.contents);
            result = result.and(freed);
        }
        result
    }
}
