//! Reads the tree: lookups, the next extent, and the nodes.

use super::super::{Extent, ExtentState, MapCx, MapRoot, Mapping, block_after};
use super::check::{self, Expect};
use super::node;
use super::path::{Leaf, read_node};
use crate::error::Result;
use nextent_ondisk::extent::Node;
use nextent_ondisk::{BlockNo, Structure};
use nextent_sync::reads;

/// Most extents that [`lookup_near`] adds. Reading them takes less time than the descent to their
/// leaf.
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
    // Ends at a corrupt extent. A lookup of that extent returns the error.
    near.extend((from..to).map_while(|i| leaf.extent(cx, node, i).ok()));
    Ok(found)
}

/// The mapping of `at`, for at most `max` blocks. `pos` is the number of extents in the leaf that
/// begin at or before `at`.
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

/// The mapping of `at`, if the root is a leaf that maps it. None also for a corrupt root; the full
/// lookup returns the error.
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

/// The extent that covers `at`, else the first one after it.
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

/// Calls `f` with the block and the depth of each node below the root, parents first.
pub(in super::super) fn visit_nodes(
    cx: &MapCx<'_>,
    root: &MapRoot,
    f: &mut dyn FnMut(BlockNo, u32),
) -> Result<()> {
    let node = check::root(root.bytes()).map_err(|c| cx.place(c, None))?;
    visit_children(cx, node, u32::MAX, f)
}

/// Visits the nodes below `node`. A level has no node twice, because keys rise and the first key of
/// a node is its key in the parent. The depth falls with each level.
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
