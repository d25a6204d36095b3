//! Moves extents along the file, for collapse range and insert range.
//!
//! Each step moves the extents of one leaf, beginning at the side of the gap. Keys are therefore in
//! order whenever the handle may be restarted.

use super::super::{Extent, MapCx, MapRoot, Progress, block_after, credits};
use super::path::Path;
use super::{check, edit, grow, lookup, node};
use crate::error::{Error, Result};
use nextent_ondisk::FileBlock;
use nextent_ondisk::extent::NodeMut;
use nextent_store::Handle;
use std::ops::Range;

/// See [`super::super::shift_left`].
pub(in super::super) fn shift_left(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    from: u32,
    by: u32,
) -> Result<Progress> {
    check_gap(cx, root, from, by)?;
    let mut at = from;
    while at < u32::MAX {
        let path = Path::find(cx, root, at)?;
        let image = path.leaf_image(root);
        let leaf = path.node(cx, path.leaf(), &image)?;
        let (pos, count) = (path.pos(path.leaf()), leaf.len());
        let first = pos - usize::from(pos > 0 && path.key(leaf, pos - 1) == at);
        drop(image);
        if first < count {
            if !h.ensure(credits::edit_credits(root.depth()))? {
                return Ok(Progress::Stopped(FileBlock(at)));
            }
            move_keys(cx, h, root, &path, first..count, |key| key.wrapping_sub(by))?;
            join(cx, h, root, &path, first)?;
        }
        check::check_key_order(path.bound(), at).map_err(|c| cx.place(c, None))?;
        at = path.bound();
    }
    Ok(Progress::Done)
}

/// Checks that the `by` blocks before `from` are a hole.
fn check_gap(cx: &MapCx<'_>, root: &MapRoot, from: u32, by: u32) -> Result<()> {
    let gap = from.checked_sub(by).ok_or_else(|| Error::TooBig)?;
    match lookup::next_extent(cx, root, gap)? {
        Some(e) if e.at.get() < from => Err(Error::Invalid),
        _ => Ok(()),
    }
}

/// See [`super::super::shift_right`].
pub(in super::super) fn shift_right(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    range: Range<u32>,
    by: u32,
) -> Result<Progress> {
    let mut end = range.end;
    if end == u32::MAX {
        check_end(cx, root, range.start, by)?;
    }
    if !split_at(cx, h, root, range.start)? {
        return Ok(Progress::Stopped(FileBlock(end)));
    }
    while end > range.start {
        let path = Path::find(cx, root, end - 1)?;
        let image = path.leaf_image(root);
        let leaf = path.node(cx, path.leaf(), &image)?;
        let pos = path.pos(path.leaf());
        let mut first = pos;
        while first > 0 && path.key(leaf, first - 1) >= range.start {
            first -= 1;
        }
        if first == pos {
            break;
        }
        let lowest = path.key(leaf, first);
        drop(image);
        if !h.ensure(credits::edit_credits(root.depth()))? {
            return Ok(Progress::Stopped(FileBlock(end)));
        }
        move_keys(cx, h, root, &path, first..pos, |key| key.wrapping_add(by))?;
        end = lowest.min(end - 1);
    }
    Ok(Progress::Done)
}

/// Checks that the last extent does not pass [`END_OF_BLOCKS`](super::super::END_OF_BLOCKS) when it
/// moves.
fn check_end(cx: &MapCx<'_>, root: &MapRoot, from: u32, by: u32) -> Result<()> {
    let path = Path::find(cx, root, u32::MAX - 1)?;
    let image = path.leaf_image(root);
    let leaf = path.node(cx, path.leaf(), &image)?;
    let pos = path.pos(path.leaf());
    if pos == 0 {
        return Ok(());
    }
    let end = path.extent(cx, leaf, pos - 1)?.end().get();
    match end.checked_add(by) {
        None if end > from => Err(Error::TooBig),
        _ => Ok(()),
    }
}

/// Splits the extent that crosses `at`; false if the credits do not suffice.
fn split_at(cx: &MapCx<'_>, h: &Handle<'_>, root: &mut MapRoot, at: u32) -> Result<bool> {
    loop {
        let path = Path::find(cx, root, at)?;
        let pos = path.pos(path.leaf());
        if pos == 0 {
            return Ok(true);
        }
        let image = path.leaf_image(root);
        let e = path.extent(cx, path.node(cx, path.leaf(), &image)?, pos - 1)?;
        drop(image);
        let before = at - e.at.get();
        if before == 0 || before >= e.len {
            return Ok(true);
        }
        if !h.ensure(credits::edit_credits(root.depth()))? {
            return Ok(false);
        }
        let halves = [
            Extent { len: before, ..e },
            Extent {
                at: FileBlock(at),
                start: block_after(e.start, before),
                len: e.len - before,
                ..e
            },
        ];
        if edit::apply(cx, h, root, &path, (pos - 1, 1), &halves)? {
            return Ok(true);
        }
        grow::make_room(cx, h, root, &path)?;
    }
}

/// Changes the keys of the extents `range` of the path's leaf.
fn move_keys(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    path: &Path,
    range: Range<usize>,
    moved: impl Fn(u32) -> u32,
) -> Result<()> {
    let level = path.leaf();
    let image = path.image(level, root);
    let first = path.key(path.node(cx, level, &image)?, range.start);
    drop(image);
    let at_start = range.start == 0;
    path.edit(cx, h, root, level, |b| {
        let mut node = NodeMut::new(b)?;
        for i in range.start..range.end.min(node.view().len()) {
            let key = node.view().key(i).get();
            node.set_key(i, FileBlock(moved(key)));
        }
        Ok(())
    })?;
    if at_start {
        edit::fix_keys(cx, h, root, path, level, moved(first))?;
    }
    Ok(())
}

/// Merges extent `i` of the path's leaf with the one before it, if possible.
fn join(cx: &MapCx<'_>, h: &Handle<'_>, root: &mut MapRoot, path: &Path, i: usize) -> Result<()> {
    if i == 0 {
        return Ok(());
    }
    let image = path.leaf_image(root);
    let leaf = path.node(cx, path.leaf(), &image)?;
    let e = path.extent(cx, leaf, i)?;
    let meets = node::can_merge(&path.extent(cx, leaf, i - 1)?, &e);
    drop(image);
    if meets {
        // Two extents become one, so the leaf has room.
        edit::replace(cx, h, root, path, (i, 1), &[e])?;
    }
    Ok(())
}
