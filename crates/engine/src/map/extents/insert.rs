//! Maps a hole.

use super::super::{BlockRun, Extent, ExtentState, MapCx, MapRoot, block_after};
use super::path::Path;
use super::{edit, grow, node};
use crate::error::{Error, Result};
use nextent_ondisk::extent::Node;
use nextent_ondisk::{FileBlock, Structure};
use nextent_store::Handle;

/// See [`super::super::insert`].
pub(in super::super) fn insert(
    cx: &MapCx<'_>,
    h: &Handle<'_>,
    root: &mut MapRoot,
    at: u32,
    run: BlockRun,
    state: ExtentState,
) -> Result<u32> {
    let mut done = 0;
    while done < run.len {
        let len = (run.len - done).min(node::max_len(state));
        let e =
            Extent { at: FileBlock(at + done), start: block_after(run.start, done), len, state };
        match insert_extent(cx, h, root, &e) {
            Ok(()) => root.add_change(i64::from(len)),
            Err(Error::NoSpace) if done > 0 => break,
            Err(error) => return Err(error),
        }
        done += len;
    }
    Ok(done)
}

/// Inserts one extent.
///
/// Most insertions continue the extent before them, so that is tried first, in place. In a leaf
/// root it needs no path.
fn insert_extent(cx: &MapCx<'_>, h: &Handle<'_>, root: &mut MapRoot, e: &Extent) -> Result<()> {
    if root.depth() == 0 {
        let bytes = root.bytes_mut();
        let pos = Node::new(bytes).map_or(0, |node| node::upper_bound(node, e.at.get()));
        if node::extend(bytes, pos, e, u32::MAX)? {
            return Ok(());
        }
    }
    loop {
        let path = Path::find(cx, root, e.at.get())?;
        let pos = path.pos(path.leaf());
        let bound = path.bound();
        if path.edit(cx, h, root, path.leaf(), |b| node::extend(b, pos, e, bound))? {
            return Ok(());
        }
        let right_end = check_hole(cx, root, &path, e)?;
        if edit::replace(cx, h, root, &path, (pos, 0), &[*e])? {
            return Ok(());
        }
        if !right_end {
            grow::make_room(cx, h, root, &path)?;
        } else if grow::append(cx, h, root, &path, e)? {
            return Ok(());
        }
    }
}

/// Checks that the blocks of `e` are a hole. True if `e` goes after all extents of the leaf.
fn check_hole(cx: &MapCx<'_>, root: &MapRoot, path: &Path, e: &Extent) -> Result<bool> {
    let image = path.leaf_image(root);
    let leaf = path.node(cx, path.leaf(), &image)?;
    let pos = path.pos(path.leaf());
    let overlaps = e.end().get() > path.key(leaf, pos)
        || pos > 0 && path.extent(cx, leaf, pos - 1)?.end() > e.at;
    if overlaps {
        let (what, no) = (Structure::ExtentNode, path.number(path.leaf()));
        return Err(cx.corrupt(what, no, "mapped file block in a hole", e.at.get().into()));
    }
    Ok(pos >= leaf.len())
}
