//! Reading: what is at a block, what comes next, which nodes there are.

use super::super::{Extent, ExtentState, MapCx, MapRoot, Mapping, block_after};
use super::check::{self, Expect};
use super::node;
use super::path::{Leaf, read_node};
use crate::error::Result;
use nextent_ondisk::extent::Node;
use nextent_ondisk::{BlockNo, Structure};
use nextent_sync::reads;

/// Extents that a lookup tells beside the one asked for: as many as are read in less time than the
/// way to their leaf takes.
const NEAR: usize = 64;

/// See [`super::super::lookup`].
pub(in super::super) fn lookup(
    cx: &MapCx<'_>,
    root: &MapRoot,
    at: u32,
    max: u32,
) -> Result<Mapping> {
    if let Some(mapping) = lookup_in_root(cx, root, at, max) {
        return Ok(mapping);
    }
    let leaf = Leaf::find(cx, root, at)?;
    let node = leaf.node(cx)?;
    lookup_in_leaf(cx, &leaf, node, (at, max), node::upper_bound(node, at))
}

/// See [`super::super::lookup_near`].
pub(in super::super) fn lookup_near(
    cx: &MapCx<'_>,
    root: &MapRoot,
    at: u32,
    max: u32,
    near: &mut Vec<Extent>,
) -> Result<Mapping> {
    let leaf = Leaf::find(cx, root, at)?;
    let node = leaf.node(cx)?;
    let pos = node::upper_bound(node, at);
    let found = lookup_in_leaf(cx, &leaf, node, (at, max), pos)?;
    let from = pos.saturating_sub(NEAR / 2);
    let to = node.len().min(from + NEAR);
    reads(node.entries().get(from..to).unwrap_or_default());
    // Odd ones are named to who asks for them.
    near.extend((from..to).map_while(|i| leaf.extent(cx, node, i).ok()));
    Ok(found)
}

/// What covers `at`, for at most `max` blocks, where `pos` extents of a leaf begin at or before it.
fn lookup_in_leaf(
    cx: &MapCx<'_>,
    leaf: &Leaf<'_>,
    node: Node<'_>,
    (at, max): (u32, u32),
    pos: usize,
) -> Result<Mapping> {
    let mut goal = None;
    if pos > 0 {
        let e = leaf.extent(cx, node, pos - 1)?;
        let skip = at - e.at.get();
        if skip < e.len {
            let (start, len) = (block_after(e.start, skip), max.min(e.len - skip));
            return Ok(match e.state {
                ExtentState::Written => Mapping::Written { start, len },
                ExtentState::Unwritten => Mapping::Unwritten { start, len },
            });
        }
        goal = Some(block_after(e.start, skip));
    } else if pos < node.len() {
        let e = leaf.extent(cx, node, pos)?;
        goal = e.start.get().checked_sub(u64::from(e.at.get() - at)).map(BlockNo);
    }
    let next = leaf.key(node, pos);
    leaf.check_key_order(cx, next, at)?;
    Ok(Mapping::Hole { len: max.min(next.saturating_sub(at)), goal })
}

/// What covers `at`, if a root that is a leaf says so. Anything odd is left to the long way, which
/// names it.
fn lookup_in_root(cx: &MapCx<'_>, root: &MapRoot, at: u32, max: u32) -> Option<Mapping> {
    let node = Node::new(root.bytes()).ok().filter(|node| node.depth() == 0)?;
    let e = Extent::from(node.extent(node::upper_bound(node, at).checked_sub(1)?));
    if !cx.geometry.holds_run(e.start, u64::from(e.len)) {
        return None;
    }
    let skip = at - e.at.get();
    let len = e.len.checked_sub(skip).filter(|left| *left > 0)?.min(max);
    let start = block_after(e.start, skip);
    Some(match e.state {
        ExtentState::Written => Mapping::Written { start, len },
        ExtentState::Unwritten => Mapping::Unwritten { start, len },
    })
}

/// The extent that covers `at`, or else the first one after it.
pub(in super::super) fn next_extent(
    cx: &MapCx<'_>,
    root: &MapRoot,
    at: u32,
) -> Result<Option<Extent>> {
    let leaf = Leaf::find(cx, root, at)?;
    let node = leaf.node(cx)?;
    let pos = node::upper_bound(node, at);
    if pos > 0 {
        let e = leaf.extent(cx, node, pos - 1)?;
        if at < e.end().get() {
            return Ok(Some(e));
        }
    }
    if pos < node.len() {
        return leaf.extent_after(cx, node, pos, at).map(Some);
    }
    if leaf.bound == u32::MAX {
        return Ok(None);
    }
    // The next leaf begins exactly at the bound, or reading it fails.
    let leaf = Leaf::find(cx, root, leaf.bound)?;
    let node = leaf.node(cx)?;
    if node.is_empty() { Ok(None) } else { leaf.extent_after(cx, node, 0, at).map(Some) }
}

/// Calls `f` with the block and the depth of every node below the root, each
/// node before its children.
pub(in super::super) fn visit_nodes(
    cx: &MapCx<'_>,
    root: &MapRoot,
    f: &mut dyn FnMut(BlockNo, u32),
) -> Result<()> {
    let node = check::root(root.bytes()).map_err(|c| cx.place(c, None))?;
    visit_children(cx, node, u32::MAX, f)
}

/// The depth falls with each level, and each node's first key is its parent's
/// while keys rise, so that no node comes twice on a level.
fn visit_children(
    cx: &MapCx<'_>,
    node: Node<'_>,
    bound: u32,
    f: &mut dyn FnMut(BlockNo, u32),
) -> Result<()> {
    if node.depth() == 0 {
        return Ok(());
    }
    let depth = node.depth() - 1;
    let mut from = 0;
    for (i, child) in node.indexes().enumerate() {
        let key = child.block.get();
        let next = if i + 1 < node.len() { node.key(i + 1).get().min(bound) } else { bound };
        if key >= next || key < from {
            return Err(cx.corrupt(Structure::ExtentNode, None, "ei_block", u64::from(key)));
        }
        from = next;
        let expect = Expect { depth, key, bound: next };
        let (_, image) = read_node(cx, child.child, &expect)?;
        f(child.child, u32::from(depth));
        let below = check::node(&image, &expect).map_err(|c| cx.place(c, Some(child.child)))?;
        visit_children(cx, below, next, f)?;
    }
    Ok(())
}
