//! Makes room in the tree: adds levels, splits nodes, and adds branches at the right end.

use super::super::{Extent, MapCx, MapRoot};
use super::edit::free_nodes;
use super::node;
use super::path::Path;
use super::{MAX_DEPTH, check};
use crate::error::{Error, Result};
use nextent_num::must_fit;
use nextent_ondisk::extent::{Index, NodeMut};
use nextent_ondisk::{BlockNo, FileBlock};
use nextent_store::{BlockRef, Handle};

/// Does one step towards room in the path's leaf: adds a level, or splits one node in halves.
///
/// The tree is consistent after the step, and the path is stale. The caller finds its leaf again,
/// and repeats until there is room, at most two steps a level.
pub(super) fn make_room(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    path: &Path,
) -> Result<()> {
    match lowest_with_room(cx, path, root)? {
        Some(level) => split(cx, h, root, path, level + 1),
        None => grow(cx, h, root),
    }
}

/// Adds `e` after all extents of the path's full leaf.
///
/// `e` goes into a new leaf if the path is at the right end of each node that would be split, so
/// that the nodes of a sequentially written file are full. Otherwise this does a step like
/// [`make_room`] and returns false.
pub(super) fn append(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    path: &Path,
    e: &Extent,
) -> Result<bool> {
    let Some(level) = lowest_with_room(cx, path, root)? else {
        grow(cx, h, root)?;
        return Ok(false);
    };
    let mut right_end = true;
    for level in level + 1..=path.leaf() {
        let last = if level == path.leaf() { 0 } else { 1 };
        let image = path.image(level, root);
        right_end &= path.pos(level) + last >= path.node(cx, level, &image)?.len();
    }
    if right_end {
        branch(cx, h, root, path, level, e)?;
        return Ok(true);
    }
    split(cx, h, root, path, level + 1)?;
    Ok(false)
}

/// The level of the lowest inner node of the path with room for another child.
fn lowest_with_room(cx: &MapCx<'_>, path: &Path, root: &MapRoot) -> Result<Option<usize>> {
    for level in (0..path.leaf()).rev() {
        let image = path.image(level, root);
        if !path.node(cx, level, &image)?.is_full() {
            return Ok(Some(level));
        }
    }
    Ok(None)
}

/// Creates a node with `depth` levels below it; `fill` adds its entries.
fn create(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    no: BlockNo,
    depth: u16,
    fill: impl FnOnce(&mut [u8]) -> node::Edited,
) -> Result<BlockRef> {
    let block = h.create(no, cx.extent_seal());
    h.update(&block, |b| {
        NodeMut::init(b, depth);
        fill(b)
    })
    .map_err(|c| cx.place(c, Some(no)))?;
    Ok(block)
}

/// Adds a level: moves the root's entries into a new node, the root's only child.
fn grow(cx: &MapCx<'_>, h: &Handle<'_>, root: &mut MapRoot) -> Result<()> {
    let old = *root.bytes();
    let node = check::root(&old).map_err(|c| cx.place(c, None))?;
    let depth = node.depth();
    if usize::from(depth) >= MAX_DEPTH || node.is_empty() {
        return Err(Error::TooBig);
    }
    let block = node.key(0);
    let no = cx.allocate_node(h, root, None)?;
    create(cx, h, no, depth, |b| node::append(b, &old, 0))?;
    NodeMut::init(root.bytes_mut(), depth + 1).insert_index(0, Index { block, child: no });
    Ok(())
}

/// Moves the right half of the path's node at `level` into a new node, its right sibling.
fn split(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    path: &Path,
    level: usize,
) -> Result<()> {
    let no = cx.allocate_node(h, root, path.number(level))?;
    let image = path.image(level, root);
    let node = path.node(cx, level, &image)?;
    let (count, middle) = (node.len(), node.len() / 2);
    let child = Index { block: node.key(middle), child: no };
    create(cx, h, no, node.depth(), |b| node::append(b, &image, middle))?;
    drop(image);
    let pos = path.pos(level - 1);
    path.edit(cx, h, root, level - 1, |b| node::insert_child(b, pos + 1, child))?;
    path.edit(cx, h, root, level, |b| node::remove(b, middle, count))
}

/// Adds a chain of new nodes under the path's node at `level`, after the path's entry. It ends in a
/// leaf with `e` as the only extent.
fn branch(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    path: &Path,
    level: usize,
    e: &Extent,
) -> Result<()> {
    let mut nodes = [None; MAX_DEPTH];
    let new = path.leaf() - level;
    for (i, no) in nodes[..new].iter_mut().enumerate() {
        match cx.allocate_node(h, root, path.number(path.leaf() - i)) {
            Ok(allocated) => *no = Some(allocated),
            Err(error) => {
                free_nodes(cx, h, root, &nodes)?;
                return Err(error);
            }
        }
    }
    let index = |child| Index { block: FileBlock(e.at.get()), child };
    let mut below = None;
    for (depth, no) in nodes.iter().flatten().enumerate() {
        create(cx, h, *no, must_fit(depth), |b| match below {
            None => node::splice(b, 0, 0, &[*e]),
            Some(child) => node::insert_child(b, 0, index(child)),
        })?;
        below = Some(*no);
    }
    let pos = path.pos(level);
    path.edit(cx, h, root, level, |b| match below {
        Some(child) => node::insert_child(b, pos + 1, index(child)),
        None => Ok(()),
    })
}
