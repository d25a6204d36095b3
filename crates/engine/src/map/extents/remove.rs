//! Unmaps blocks, from the end of the range to its start.

use super::super::freed_runs::FreedRuns;
use super::super::{Extent, MapCx, MapRoot, Progress, block_after, credits};
use super::check::{self, Expect};
use super::path::{Path, read_node};
use super::{edit, grow, node};
use crate::error::Result;
use nextent_ondisk::FileBlock;
use nextent_ondisk::extent::{Node, NodeMut};
use nextent_store::Handle;
use std::ops::Range;

/// See [`super::super::remove`].
pub(in super::super) fn remove(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    range: Range<u32>,
) -> Result<Progress> {
    let mut end = range.end;
    while end > range.start {
        match step(cx, h, root, range.start..end)? {
            Step::To(lower) => end = lower,
            Step::NothingLeft => break,
            Step::Short => return Ok(Progress::Stopped(FileBlock(end))),
        }
    }
    collapse(cx, h, root)?;
    Ok(Progress::Done)
}

enum Step {
    /// The blocks from this one on are removed.
    To(u32),
    /// The range has no mapped blocks left.
    NothingLeft,
    /// The credits of the handle do not suffice for one block.
    Short,
}

/// The part of a leaf that a step removes: the entries `first..last`, except for their parts `head`
/// and `tail`.
struct Cut {
    first: usize,
    last: usize,
    head: Option<Extent>,
    tail: Option<Extent>,
    /// The first file block that is removed.
    lowest: u32,
}

/// Removes the last extents of `range` that lie in one leaf, as many as the handle's credits allow.
fn step(cx: &MapCx<'_>, h: &Handle<'_>, root: &mut MapRoot, range: Range<u32>) -> Result<Step> {
    let path = Path::find(cx, root, range.end - 1)?;
    let mut runs = FreedRuns::new(h, cx, credits::remove_fixed(root.depth()))?;
    let pos = path.pos(path.leaf());
    let cut = collect(cx, root, &path, &range, &mut runs)?;
    if runs.is_empty() {
        let nothing = pos == 0 || {
            let image = path.leaf_image(root);
            let leaf = path.node(cx, path.leaf(), &image)?;
            path.extent(cx, leaf, pos - 1)?.end().get() <= range.start
        };
        return Ok(if nothing { Step::NothingLeft } else { Step::Short });
    }
    let mut stay = [Extent::NONE; 2];
    let mut n = 0;
    for e in cut.head.iter().chain(&cut.tail) {
        stay[n] = *e;
        n += 1;
    }
    let place = (cut.first, cut.last - cut.first);
    if !edit::replace(cx, h, root, &path, place, &stay[..n])? {
        grow::make_room(cx, h, root, &path)?;
        return Ok(Step::To(range.end));
    }
    root.add_change(-runs.blocks());
    runs.free(cx, h)?;
    Ok(Step::To(cut.lowest))
}

/// Collects runs from the end of `range`, until the leaf, the range or the credits end.
fn collect(
    cx: &MapCx<'_>,
    root: &MapRoot,
    path: &Path,
    range: &Range<u32>,
    runs: &mut FreedRuns<'_>,
) -> Result<Cut> {
    let image = path.leaf_image(root);
    let leaf = path.node(cx, path.leaf(), &image)?;
    let pos = path.pos(path.leaf());
    let mut cut = Cut { first: pos, last: pos, head: None, tail: None, lowest: range.end };
    let mut next = path.bound();
    while cut.first > 0 {
        let e = path.extent_before(cx, leaf, cut.first - 1, next)?;
        next = e.at.get();
        let (first, end) = (e.at.get(), e.end().get());
        let (wanted, to) = (first.max(range.start), end.min(cut.lowest));
        if wanted >= to {
            break;
        }
        let from = to - runs.take(block_after(e.start, wanted - first), to - wanted);
        if from == to {
            break;
        }
        if end > to {
            cut.tail = Some(part(&e, to..end));
        }
        if first < from {
            cut.head = Some(part(&e, first..from));
        }
        cut.first -= 1;
        cut.lowest = from;
        if from > wanted {
            break;
        }
    }
    Ok(cut)
}

/// The blocks `range` of `e`.
fn part(e: &Extent, range: Range<u32>) -> Extent {
    Extent {
        at: FileBlock(range.start),
        start: block_after(e.start, range.start - e.at.get()),
        len: range.end - range.start,
        state: e.state,
    }
}

/// Removes levels: moves the entries of the root's only child into the root while they fit.
fn collapse(cx: &MapCx<'_>, h: &Handle<'_>, root: &mut MapRoot) -> Result<()> {
    loop {
        let node = check::root(root.bytes()).map_err(|c| cx.place(c, None))?;
        if node.depth() == 0 || node.len() != 1 {
            return Ok(());
        }
        let (room, depth, only) =
            (node::capacity(node, root.bytes()), node.depth() - 1, node.index(0));
        let expect = Expect { depth, key: only.block.get(), bound: u32::MAX };
        let (_, image) = read_node(cx, only.child, &expect)?;
        if Node::new(&image)?.len() > room {
            return Ok(());
        }
        let bytes = root.bytes_mut();
        NodeMut::init(bytes, depth);
        node::append(bytes, &image, 0).map_err(|c| cx.place(c, Some(only.child)))?;
        drop(image);
        cx.free_node(h, root, only.child)?;
    }
}
