//! The naive model: one entry for each block.

use super::super::ExtentState;
use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Default)]
pub(super) struct Model {
    blocks: BTreeMap<u32, (u64, ExtentState)>,
}

impl Model {
    pub(super) fn blocks(&self) -> &BTreeMap<u32, (u64, ExtentState)> {
        &self.blocks
    }

    pub(super) fn get(&self, at: u32) -> Option<(u64, ExtentState)> {
        self.blocks.get(&at).copied()
    }

    pub(super) fn set(&mut self, at: u32, no: u64, state: ExtentState) {
        assert_eq!(self.blocks.insert(at, (no, state)), None);
    }

    pub(super) fn end(&self) -> u32 {
        self.blocks.last_key_value().map_or(0, |(at, _)| at + 1)
    }

    pub(super) fn hole_len(&self, at: u32) -> u32 {
        self.blocks.range(at..).next().map_or(u32::MAX, |(next, _)| *next) - at
    }

    pub(super) fn is_run(&self, at: u32, len: u32) -> bool {
        let first = self.blocks[&at];
        (0..len).all(|i| self.get(at + i) == Some((first.0 + u64::from(i), first.1)))
    }

    pub(super) fn next_data(&self, at: u32) -> Option<u32> {
        let mut rest = self.blocks.range(at..);
        rest.find(|(_, (_, state))| *state == ExtentState::Written).map(|(at, _)| *at)
    }

    pub(super) fn next_hole(&self, at: u32) -> u32 {
        let written = |at: &u32| matches!(self.get(*at), Some((_, ExtentState::Written)));
        (at..).find(|at| !written(at)).expect("files end")
    }

    pub(super) fn remove(&mut self, range: Range<u32>) {
        self.blocks.retain(|at, _| !range.contains(at));
    }

    pub(super) fn set_state(&mut self, range: Range<u32>, to: ExtentState) {
        if !range.is_empty() {
            self.blocks.range_mut(range).for_each(|(_, block)| block.1 = to);
        }
    }

    pub(super) fn shift_left(&mut self, from: u32, by: u32) {
        let moved = self.blocks.split_off(&from);
        self.blocks.extend(moved.into_iter().map(|(at, block)| (at - by, block)));
    }

    pub(super) fn shift_right(&mut self, from: u32, by: u32) {
        let moved = self.blocks.split_off(&from);
        self.blocks.extend(moved.into_iter().map(|(at, block)| (at + by, block)));
    }
}
