//! The steps by which an index grows. Each reads all it needs first and then changes blocks.

use nextent_num::{must_fit, to_u64};
use nextent_ondisk::htree::{self, NodeMut};
use nextent_ondisk::{Corrupt, FileBlock, Structure, dirent};

use super::DirError;
use super::block::{Moved, live};
use super::layout::hash;
use super::pages::PagesMut;
use super::tree::{Path, kind_of};

/// Rewrites a leaf so that its free bytes lie together.
pub(super) fn pack<P: PagesMut>(p: &P, leaf: FileBlock) -> Result<(), P::Error> {
    let list = read_leaf(p, leaf)?;
    write_leaf(p, leaf, list.iter())
}

fn read_leaf<P: PagesMut>(p: &P, leaf: FileBlock) -> Result<Vec<Moved>, P::Error> {
    let image = p.image(leaf)?;
    Ok(live(p.info(), &image).map_err(|e| p.at(leaf, e))?)
}

/// Makes block `n` a leaf of exactly `list`.
pub(super) fn write_leaf<'m, P: PagesMut>(
    p: &P,
    n: FileBlock,
    list: impl Iterator<Item = &'m Moved> + Clone,
) -> Result<(), P::Error> {
    let geometry = p.info().geometry;
    let need: usize = list.clone().map(Moved::size).sum();
    if need > dirent::leaf_len(geometry) {
        let error = Corrupt::field(Structure::Directory, "bytes of a leaf's entries", to_u64(need));
        return Err(p.at(n, error).into());
    }
    let fits = p.update(n, |bytes| dirent::pack(geometry, bytes, list.map(Moved::slot)))?;
    debug_assert!(fits, "the size was just counted");
    Ok(())
}

/// Makes room for one more pair in the node above the path's leaf.
///
/// True if there was room. Otherwise one step was made and the path is no longer valid.
pub(super) fn make_room<P: PagesMut>(p: &P, path: &Path) -> Result<bool, P::Error> {
    let full = path.frames.iter().rev().take_while(|f| f.full).count();
    if full == 0 {
        return Ok(true);
    }
    if full == path.frames.len() {
        add_level(p, path)?;
    } else {
        split_node(p, path, path.frames.len() - full)?;
    }
    Ok(false)
}

/// Moves the root's pairs to a new node below it.
fn add_level<P: PagesMut>(p: &P, path: &Path) -> Result<(), P::Error> {
    let root = FileBlock(0);
    let levels = path.frames.len();
    if levels > usize::from(htree::max_levels(p.info().geometry)) {
        return Err(DirError::IndexFull.into());
    }
    let pairs = read_pairs(p, root, 0)?;
    let node = p.append()?;
    write_node(p, node, &pairs)?;
    p.update(root, |bytes| {
        let mut view = NodeMut::new(kind_of(root), bytes);
        cut(&mut view, 1);
        view.set_block(0, node);
        view.set_levels(must_fit(levels));
    })
}

/// Moves the upper half of the node at `level` of the path, which is not the root, to a new one.
fn split_node<P: PagesMut>(p: &P, path: &Path, level: usize) -> Result<(), P::Error> {
    let (frame, above) = (path.frames[level], path.frames[level - 1]);
    let half = frame.count / 2;
    let pairs = read_pairs(p, frame.block, half)?;
    let node = p.append()?;
    write_node(p, node, &pairs)?;
    p.update(frame.block, |bytes| cut(&mut NodeMut::new(kind_of(frame.block), bytes), half))?;
    p.update(above.block, |bytes| {
        NodeMut::new(kind_of(above.block), bytes).insert(above.at + 1, pairs[0].0, node);
    })
}

/// Keeps the first `len` pairs.
fn cut(node: &mut NodeMut<'_>, len: usize) {
    while node.view().len() > len {
        node.remove(node.view().len() - 1);
    }
}

fn write_node<P: PagesMut>(
    p: &P,
    n: FileBlock,
    pairs: &[(u32, FileBlock)],
) -> Result<(), P::Error> {
    let geometry = p.info().geometry;
    p.update(n, |bytes| {
        let mut node = NodeMut::init(geometry, bytes, pairs[0].1);
        for (i, &(hash, child)) in pairs.iter().enumerate().skip(1) {
            node.insert(i, hash, child);
        }
    })
}

fn read_pairs<P: PagesMut>(
    p: &P,
    block: FileBlock,
    from: usize,
) -> Result<Vec<(u32, FileBlock)>, P::Error> {
    let image = p.image(block)?;
    let node = htree::open(p.info().geometry, kind_of(block), &image);
    Ok(node.map_err(|e| p.at(block, e))?.pairs().skip(from).collect())
}

/// Moves the entries with the higher hashes, about half of the bytes, to a new leaf.
///
/// The node above has room.
pub(super) fn split_leaf<P: PagesMut>(p: &P, path: &Path) -> Result<(), P::Error> {
    let list = read_leaf(p, path.leaf)?;
    let mut order: Vec<(u32, Moved)> =
        list.into_iter().map(|e| (hash(&path.hasher, &e.name).major, e)).collect();
    order.sort_by_key(|(hash, _)| *hash);
    let Some(middle) = middle(&order) else {
        let error = Corrupt::field(Structure::Directory, "entries in a full leaf", 1u32);
        return Err(p.at(path.leaf, error).into());
    };
    let (low, high) = order.split_at(middle);
    let hash = high[0].0 | u32::from(low[middle - 1].0 == high[0].0);
    let above = *path.bottom();
    let new = p.append()?;
    write_leaf(p, new, high.iter().map(|(_, e)| e))?;
    write_leaf(p, path.leaf, low.iter().map(|(_, e)| e))?;
    p.update(above.block, |bytes| {
        NodeMut::new(kind_of(above.block), bytes).insert(above.at + 1, hash, new);
    })
}

/// Where to cut a sorted leaf so that both parts need about the same bytes; both have an entry.
///
/// A cut between two hashes is better than one inside a hash, if one is near.
fn middle(order: &[(u32, Moved)]) -> Option<usize> {
    if order.len() < 2 {
        return None;
    }
    let total: usize = order.iter().map(|(_, e)| e.size()).sum();
    let mut below = 0;
    let mut best = (usize::MAX, 1);
    for cut in 1..order.len() {
        below += order[cut - 1].1.size();
        let same = order[cut - 1].0 == order[cut].0;
        let cost = (2 * below).abs_diff(total) + if same { total / 4 } else { 0 };
        best = best.min((cost, cut));
    }
    Some(best.1)
}
