//! Runs of blocks to be freed after they were unmapped, and what freeing costs.

use super::MapCx;
use crate::error::Result;
use nextent_num::must_fit;
use nextent_ondisk::{BlockNo, Geometry};
use nextent_store::Handle;

/// Runs freed in one step; bounds the credits and the stack that a step takes.
const MOST: usize = 48;

/// Credits that one group costs: its bitmap and its descriptor's block.
pub(super) const GROUP_CREDITS: u32 = 2;

/// The credits wanted for the runs of one step if the transaction has them.
const STEP_CREDITS: u32 = 32;

/// Runs collected from the right to the left, within a budget of credits.
pub(super) struct Runs<'a> {
    items: [(u64, u32); MOST],
    len: usize,
    budget: u32,
    blocks: i64,
    geometry: &'a Geometry,
}

impl<'a> Runs<'a> {
    /// An empty list whose freeing will fit into what `h` has beyond `fixed` credits.
    pub(super) fn new(h: &Handle<'_>, geometry: &'a Geometry, fixed: u32) -> Result<Self> {
        let want = fixed + STEP_CREDITS;
        let budget = if h.ensure(want)? { want } else { h.credits_left() };
        Ok(Self {
            items: [(0, 0); MOST],
            len: 0,
            budget: budget.saturating_sub(fixed),
            blocks: 0,
            geometry,
        })
    }

    /// Adds a run; false if it does not fit any more.
    pub(super) fn push(&mut self, start: BlockNo, len: u32) -> bool {
        let start = start.get();
        let (first, last) = (self.group(start), self.group(start + u64::from(len) - 1));
        let before = self.len.checked_sub(1).map(|i| self.items[i]);
        let known = before.is_some_and(|(s, _)| self.group(s) == last);
        let cost = (last - first + u64::from(!known)) * u64::from(GROUP_CREDITS);
        if cost > u64::from(self.budget) {
            return false;
        }
        match before {
            Some((s, l)) if start + u64::from(len) == s && l.checked_add(len).is_some() => {
                self.items[self.len - 1] = (start, l + len);
            }
            _ if self.len == MOST => return false,
            _ => {
                self.items[self.len] = (start, len);
                self.len += 1;
            }
        }
        self.budget -= must_fit::<u32, _>(cost);
        self.blocks += i64::from(len);
        true
    }

    fn group(&self, block: u64) -> u64 {
        block.saturating_sub(self.geometry.first_data_block.get())
            / u64::from(self.geometry.blocks_per_group)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of blocks in all runs.
    pub(super) fn blocks(&self) -> i64 {
        self.blocks
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
