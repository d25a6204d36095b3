//! Unmaps blocks of an indirect map, from the end of the range to its start.

use super::super::freed_runs::FreedRuns;
use super::super::{MapCx, MapRoot, Progress, credits};
use super::path::{Path, check};
use super::table;
use crate::error::Result;
use nextent_num::{must_fit, to_usize};
use nextent_ondisk::{BlockNo, FileBlock, indirect};
use nextent_store::Handle;
use std::ops::Range;

/// See [`super::super::remove`].
pub(in super::super) fn remove(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    range: Range<u32>,
) -> Result<Progress> {
    let most = indirect::max_blocks(cx.geometry);
    let mut end = must_fit(u64::from(range.end).min(most));
    while end > range.start {
        match step(cx, h, root, range.start..end)? {
            Some(lower) => end = lower,
            None => return Ok(Progress::Stopped(FileBlock(end))),
        }
    }
    Ok(Progress::Done)
}

/// Removes the blocks of `range` in the table that maps its last block, as far as credits allow.
/// Returns the end of the remaining range; none if the credits do not suffice for one block.
fn step(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    range: Range<u32>,
) -> Result<Option<u32>> {
    let last = range.end - 1;
    let path = Path::find(cx, root, last)?;
    let pos = path.pos;
    if !path.is_whole() {
        return Ok(Some(last.saturating_sub(must_fit(pos.offset(path.found))).max(range.start)));
    }
    let mut runs = FreedRuns::new(h, cx, credits::remove_fixed(root.depth()))?;
    let first_block = last - pos.slot();
    let low = if pos.depth == 0 { range.start } else { range.start.saturating_sub(first_block) };
    let slots = low..pos.slot() + 1;
    let from = collect(cx, root, &path, slots.clone(), &mut runs)?;
    if from == slots.end {
        return Ok(None);
    }
    if !runs.is_empty() || pos.depth > 0 {
        unlink(cx, h, root, &path, from..slots.end, !runs.is_empty())?;
    }
    root.add_change(-runs.blocks());
    runs.free(cx, h)?;
    let block = if pos.depth == 0 { from } else { first_block + from };
    Ok(Some(block))
}

/// Collects the runs of `slots` from the end. Returns the first slot collected.
fn collect(
    cx: &MapCx<'_>,
    root: &MapRoot,
    path: &Path,
    slots: Range<u32>,
    runs: &mut FreedRuns<'_>,
) -> Result<u32> {
    let image = path.image(path.found, root);
    for slot in slots.clone().rev() {
        let pointer = table::pointer(&image, slot);
        if pointer == 0 {
            continue;
        }
        check(cx, pointer, 1, path.number(path.found))?;
        if runs.take(BlockNo(u64::from(pointer)), 1) == 0 {
            return Ok(slot + 1);
        }
    }
    Ok(slots.start)
}

/// Clears `slots` of the path's last table. If the table has no other pointers, removes it, and
/// each ancestor whose only pointer leads to it.
fn unlink(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    path: &Path,
    slots: Range<u32>,
    mapped: bool,
) -> Result<()> {
    let mut keeper = path.found;
    let mut clear = slots;
    while keeper > 0 && only(&path.image(keeper, root), &clear) {
        keeper -= 1;
        clear = path.pos.slots[keeper]..path.pos.slots[keeper] + 1;
    }
    if keeper == path.found && !mapped {
        return Ok(());
    }
    path.edit(h, root, keeper, |bytes| {
        clear.for_each(|slot| table::set_pointer(bytes, slot, 0));
    });
    let mut result = Ok(());
    for level in keeper + 1..=path.found {
        if let Some(no) = path.number(level) {
            let freed = cx.free_node(h, root, no);
            result = result.and(freed);
        }
    }
    result
}

/// Whether the table has no pointers outside `slots`.
fn only(bytes: &[u8], slots: &Range<u32>) -> bool {
    let (start, end) = (to_usize(slots.start) * 4, to_usize(slots.end) * 4);
    bytes[..start].iter().chain(&bytes[end..]).all(|&byte| byte == 0)
}
