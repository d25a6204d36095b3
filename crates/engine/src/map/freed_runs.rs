//! Runs of blocks to be freed after they were unmapped, and what freeing costs.

use super::{BlockKind, MapCx};
use crate::error::Result;
use nextent_num::must_fit;
use nextent_ondisk::{BlockNo, Geometry, GroupNo};
use nextent_store::{Handle, REVOKES_PER_CREDIT as PER_REVOKE};

/// Runs freed in one step; bounds the credits and the stack that a step takes.
const MOST: usize = 48;

/// Credits that one group costs: its bitmap and its descriptor's block.
pub(super) const GROUP_CREDITS: u32 = 2;

/// The credits wanted for the runs of one step if the transaction has them.
pub(super) const STEP_CREDITS: u32 = 32;

/// Runs collected from the right to the left, within a budget of credits.
pub(super) struct FreedRuns<'a> {
    items: [(u64, u32); MOST],
    len: usize,
    budget: u32,
    blocks: u32,
    /// The journal revokes the freed blocks, since it logged their contents.
    revokes: bool,
    geometry: &'a Geometry,
}

impl<'a> FreedRuns<'a> {
    /// An empty list whose freeing will fit into what `h` has beyond `fixed` credits.
    pub(super) fn new(h: &Handle<'_>, cx: &MapCx<'a>, fixed: u32) -> Result<Self> {
        let want = fixed + STEP_CREDITS;
        let budget = if h.ensure(want)? { want } else { h.credits_left() };
        Ok(Self {
            items: [(0, 0); MOST],
            len: 0,
            budget: budget.saturating_sub(fixed),
            blocks: 0,
            revokes: cx.contents == BlockKind::Metadata,
            geometry: cx.geometry,
        })
    }

    /// Adds the end of a run, as many blocks as the budget pays for; returns how many. A run over
    /// many groups, or with many blocks to revoke, takes several handles.
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
            _ if self.len == MOST => return 0,
            _ => {
                self.items[self.len] = (start, len);
                self.len += 1;
            }
        }
        self.budget -= cost;
        self.blocks += len;
        len
    }

    /// How many blocks at the end of a run the budget pays for.
    fn affordable(&self, start: u64, end: u64) -> u32 {
        let mut first = start;
        while first < end && self.cost(first, end) > self.budget {
            let next = self.geometry.group_first_block(GroupNo(self.group(first) + 1)).get();
            if next < end {
                first = next;
                continue;
            }
            // One group is left: only its revoke records can be too many.
            let paid = (self.blocks.div_ceil(PER_REVOKE) + self.budget)
                .saturating_sub(self.groups_cost(first, end));
            let most = u64::from((paid * PER_REVOKE).saturating_sub(self.blocks));
            let least = if self.revokes { end.saturating_sub(most) } else { end };
            first = first.max(least);
            break;
        }
        // A run has 32 bits, and so has each part.
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

    /// Of these, for bitmaps and descriptors.
    fn groups_cost(&self, start: u64, end: u64) -> u32 {
        let (first, last) = (self.group(start), self.group(end - 1));
        let before = self.len.checked_sub(1).map(|i| self.items[i]);
        let known = before.is_some_and(|(s, _)| self.group(s) == last);
        (last - first + u32::from(!known)).saturating_mul(GROUP_CREDITS)
    }

    fn group(&self, block: u64) -> u32 {
        let group = block.saturating_sub(self.geometry.first_data_block.get())
            / u64::from(self.geometry.blocks_per_group);
        // Blocks were checked to lie on the volume, whose groups have 32 bits.
        must_fit(group)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of blocks in all runs.
    pub(super) fn blocks(&self) -> i64 {
        self.blocks.into()
    }

    /// Frees them all; the first error is returned after all were tried.
    pub(super) fn free(self, cx: &MapCx<'_>, h: &Handle<'_>) -> Result<()> {
        let mut result = Ok(());
        for &(start, len) in &self.items[..self.len] {
            let freed = cx.space.free(h, BlockNo(start), len, cx.contents);
            result = result.and(freed);
        }
        result
    }
}
