//! Changes the extents of one leaf, and updates the nodes above it.

use super::super::{Extent, MapCx, MapRoot};
use super::path::Path;
use super::{MAX_DEPTH, init_root, node};
use crate::error::Result;
use nextent_ondisk::BlockNo;
use nextent_store::Handle;

/// Most extents of an edit: three new ones, and a neighbour on each side.
const MOST: usize = 5;

/// Extents in rising order, merged if possible.
struct Pieces {
    items: [Option<Extent>; MOST],
    len: usize,
}

impl Pieces {
    fn push(&mut self, e: Extent) {
        if let Some(last) = self.len.checked_sub(1).and_then(|i| self.items[i].as_mut())
            && node::can_merge(last, &e)
        {
            last.len += e.len;
            return;
        }
        self.items[self.len] = Some(e);
        self.len += 1;
    }
}

/// A replacement of extents of a leaf.
pub(super) struct Edit {
    /// The first extent to replace, and the number of extents.
    pub(super) old: (usize, usize),
    list: [Extent; MOST],
    len: usize,
}

impl Edit {
    /// Replaces the `old` extents from `at`, between `left` and `right`, by at most three `new`
    /// ones, merged with `left` and `right` if possible.
    pub(super) fn merged(
        left: Option<Extent>,
        new: &[Extent],
        right: Option<Extent>,
        (at, old): (usize, usize),
    ) -> Self {
        let mut pieces = Pieces { items: [None; MOST], len: 0 };
        let all = left.iter().chain(new).chain(&right);
        all.for_each(|e| pieces.push(*e));

        let (mut first, mut end) = (0, pieces.len);
        let (mut from, mut gone) = (at, old);
        match left {
            Some(_) if pieces.items[0] == left => first = 1,
            Some(_) => (from, gone) = (from - 1, gone + 1),
            None => {}
        }
        match right {
            Some(_) if end > first && pieces.items[end - 1] == right => end -= 1,
            Some(_) => gone += 1,
            None => {}
        }
        let mut list = [Extent::NONE; MOST];
        for (to, piece) in list.iter_mut().zip(pieces.items[first..end].iter().flatten()) {
            *to = *piece;
        }
        Self { old: (from, gone), list, len: end - first }
    }

    /// The new extents.
    pub(super) fn replacement(&self) -> &[Extent] {
        &self.list[..self.len]
    }
}

/// Replaces the `old` extents from `at` of the path's leaf by at most three `new` ones, merged with
/// their neighbours. False if the leaf has no room; nothing is changed then. The path is stale
/// after true.
pub(super) fn replace(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    path: &Path,
    (at, old): (usize, usize),
    new: &[Extent],
) -> Result<bool> {
    let image = path.leaf_image(root);
    let leaf = path.node(cx, path.leaf(), &image)?;
    let entry = |i: usize| (i < leaf.len()).then(|| Extent::from(leaf.extent(i)));
    let (left, right) = (at.checked_sub(1).and_then(entry), entry(at + old));
    drop(image);
    let edit = Edit::merged(left, new, right, (at, old));
    apply(cx, h, root, path, edit.old, edit.replacement())
}

/// Like [`replace`], without merging.
pub(super) fn apply(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    path: &Path,
    (at, old): (usize, usize),
    new: &[Extent],
) -> Result<bool> {
    let level = path.leaf();
    let image = path.leaf_image(root);
    let leaf = path.node(cx, level, &image)?;
    let room = node::capacity(leaf, &image);
    let first = path.key(leaf, 0);
    let second = if old < leaf.len() { Some(path.key(leaf, old)) } else { None };
    let left = leaf.len().saturating_sub(old) + new.len();
    drop(image);
    if left > room {
        return Ok(false);
    }
    if left == 0 && level > 0 {
        drop_node(cx, h, root, path, level)?;
        return Ok(true);
    }
    path.edit(cx, h, root, level, |b| node::splice(b, at, old, new))?;
    if at == 0
        && let Some(key) = new.first().map(|e| e.at.get()).or(second)
        && key != first
    {
        fix_keys(cx, h, root, path, level, key)?;
    }
    Ok(true)
}

/// Updates the keys of the ancestors after the first key of the path's node at `level` changed to
/// `key`.
pub(super) fn fix_keys(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    path: &Path,
    level: usize,
    key: u32,
) -> Result<()> {
    for level in (0..level).rev() {
        let pos = path.pos(level);
        path.edit(cx, h, root, level, |b| node::set_key(b, pos, key))?;
        if pos > 0 {
            break;
        }
    }
    Ok(())
}

/// Removes the path's node at `level` from the tree, with the ancestors that have no other child,
/// and frees them.
fn drop_node(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    path: &Path,
    level: usize,
) -> Result<()> {
    let mut gone = [None; MAX_DEPTH];
    let mut keeper = level;
    let mut left;
    loop {
        gone[keeper - 1] = path.number(keeper);
        keeper -= 1;
        let image = path.image(keeper, root);
        left = path.node(cx, keeper, &image)?.len().saturating_sub(1);
        if left > 0 || keeper == 0 {
            break;
        }
    }
    let pos = path.pos(keeper);
    if left == 0 {
        init_root(root.bytes_mut());
    } else {
        path.edit(cx, h, root, keeper, |b| node::remove(b, pos, pos + 1))?;
        if pos == 0 {
            let image = path.image(keeper, root);
            let key = path.node(cx, keeper, &image)?.key(0).get();
            drop(image);
            fix_keys(cx, h, root, path, keeper, key)?;
        }
    }
    free_nodes(cx, h, root, &gone)
}

/// Frees nodes that are not in the tree, also after an error. Returns the first error.
pub(super) fn free_nodes(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    nodes: &[Option<BlockNo>],
) -> Result<()> {
    let mut result = Ok(());
    for no in nodes.iter().flatten() {
        let freed = cx.free_node(h, root, *no);
        result = result.and(freed);
    }
    result
}
