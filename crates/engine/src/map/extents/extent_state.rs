//! Changes the state of extents in place, between written and unwritten, and splits extents.

use super::super::{Extent, ExtentState, MapCx, MapRoot, Progress, block_after, credits};
use super::path::Path;
use super::{check, edit, grow, node};
use crate::error::Result;
use nextent_ondisk::FileBlock;
use nextent_store::Handle;
use std::ops::Range;

/// Sets the state of all mapped blocks of `range` to `to`. A stop returns the first block that is
/// not done.
pub(in super::super) fn set_state(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    range: Range<u32>,
    to: ExtentState,
) -> Result<Progress> {
    let mut at = range.start;
    while at < range.end {
        let path = Path::find(cx, root, at)?;
        let image = path.leaf_image(root);
        let leaf = path.node(cx, path.leaf(), &image)?;
        let pos = path.pos(path.leaf());
        let covering = match pos {
            0 => None,
            _ => Some(path.extent(cx, leaf, pos - 1)?).filter(|e| at < e.end().get()),
        };
        let Some(e) = covering else {
            let next = path.key(leaf, pos);
            check::check_key_order(next, at).map_err(|c| cx.place(c, path.number(path.leaf())))?;
            at = next;
            continue;
        };
        drop(image);
        let end = e.end().get().min(range.end);
        if e.state != to {
            if !h.ensure(credits::edit_credits(root.depth()))? {
                return Ok(Progress::Stopped(FileBlock(at)));
            }
            let (pieces, n) = cut(&e, at..end, to);
            if !edit::replace(cx, h, root, &path, (pos - 1, 1), &pieces[..n])? {
                grow::make_room(cx, h, root, &path)?;
                continue;
            }
        }
        at = end;
    }
    Ok(Progress::Done)
}

/// Splits the unwritten extents at the start and the end of `range`. A stop returns the range's
/// start, because a repeated split changes nothing.
#[cfg(feature = "lab")]
pub(in super::super) fn split(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    range: Range<u32>,
) -> Result<Progress> {
    for edge in [range.start, range.end] {
        loop {
            let path = Path::find(cx, root, edge)?;
            let image = path.leaf_image(root);
            let leaf = path.node(cx, path.leaf(), &image)?;
            let pos = path.pos(path.leaf());
            let covering = match pos {
                0 => None,
                _ => Some(path.extent(cx, leaf, pos - 1)?),
            };
            let across = covering.filter(|e| {
                e.at.get() < edge && edge < e.end().get() && e.state == ExtentState::Unwritten
            });
            drop(image);
            let Some(e) = across else { break };
            if !h.ensure(credits::edit_credits(root.depth()))? {
                return Ok(Progress::Stopped(FileBlock(range.start)));
            }
            let left = edge - e.at.get();
            let right = Extent {
                at: FileBlock(edge),
                start: block_after(e.start, left),
                len: e.len - left,
                state: e.state,
            };
            if edit::apply(cx, h, root, &path, (pos - 1, 1), &[Extent { len: left, ..e }, right])? {
                break;
            }
            grow::make_room(cx, h, root, &path)?;
        }
    }
    Ok(Progress::Done)
}

/// `e` with its blocks `part` in the state `to`. At most three pieces, because a part that is too
/// long for one extent of its new state is all of `e`.
pub(super) fn cut(e: &Extent, part: Range<u32>, to: ExtentState) -> ([Extent; 3], usize) {
    let first = e.at.get();
    let middle = part.end.min(part.start.saturating_add(node::max_len(to)));
    let pieces = [
        (first..part.start, e.state),
        (part.start..middle, to),
        (middle..part.end, to),
        (part.end..e.end().get(), e.state),
    ];
    let mut out = [Extent::NONE; 3];
    let mut n = 0;
    for (blocks, state) in pieces.into_iter().filter(|(blocks, _)| !blocks.is_empty()) {
        out[n] = Extent {
            at: FileBlock(blocks.start),
            start: block_after(e.start, blocks.start - first),
            len: blocks.end - blocks.start,
            state,
        };
        n += 1;
    }
    (out, n)
}
