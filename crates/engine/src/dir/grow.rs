//! The steps by which an index grows. Each reads all it needs first and then changes blocks.

use nextent_ondisk::{Corrupt, FileBlock, Structure};

use super::DirError;
use super::block::{Moved, entries, leaf_part, write_leaf};
use super::index::{Form, Node, add_slot, cut_slots, deepen_root, write_inner};
use super::pages::{BlockKind, PagesMut};
use super::tree::Path;

/// Rewrites a leaf so that its free bytes lie together.
pub(super) fn pack<P: PagesMut>(p: &P, leaf: FileBlock) -> Result<(), P::Error> {
    let info = *p.info();
    let live = read_leaf(p, leaf)?;
    p.update(leaf, BlockKind::Leaf, |bytes| write_leaf(&info, bytes, &live))
}

fn read_leaf<P: PagesMut>(p: &P, leaf: FileBlock) -> Result<Vec<Moved>, P::Error> {
    let image = p.image(leaf)?;
    let collect = || {
        let walk = entries(p.info(), leaf_part(p.info(), &image)?);
        walk.filter(|e| !matches!(e, Ok(e) if e.ino == 0))
            .map(|e| e.map(|e| Moved::of(&e)))
            .collect::<Result<Vec<_>, Corrupt>>()
    };
    Ok(collect().map_err(|e| p.at(leaf, e))?)
}

/// Makes room for one more slot in the node above the path's leaf.
///
/// True if there was room. Otherwise one step was made and the path is no longer valid.
pub(super) fn make_room<P: PagesMut>(p: &P, path: &Path) -> Result<bool, P::Error> {
    let full = path.frames.iter().rev().take_while(|f| f.count == f.limit).count();
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

/// Moves the root's slots to a new node below it.
fn add_level<P: PagesMut>(p: &P, path: &Path) -> Result<(), P::Error> {
    let info = *p.info();
    if path.frames.len() >= info.index.map_or(0, |i| i.max_levels.into()) {
        return Err(DirError::IndexFull.into());
    }
    let slots = read_slots(p, FileBlock(0), 0)?;
    let node = p.append(BlockKind::Index)?;
    p.update(node, BlockKind::Index, |bytes| write_inner(&info, bytes, &slots))?;
    p.update(FileBlock(0), BlockKind::Index, |bytes| deepen_root(&info, bytes, node))
}

/// Moves the upper half of the node at `level` of the path, which is not the root, to a new one.
fn split_node<P: PagesMut>(p: &P, path: &Path, level: usize) -> Result<(), P::Error> {
    let info = *p.info();
    let (frame, above) = (path.frames[level], path.frames[level - 1]);
    let half = frame.count / 2;
    let slots = read_slots(p, frame.block, half)?;
    let node = p.append(BlockKind::Index)?;
    p.update(node, BlockKind::Index, |bytes| write_inner(&info, bytes, &slots))?;
    p.update(frame.block, BlockKind::Index, |bytes| cut_slots(bytes, Form::Inner, half))?;
    p.update(above.block, BlockKind::Index, |bytes| {
        add_slot(bytes, Form::of(above.block), above.at + 1, slots[0].0, node);
    })
}

fn read_slots<P: PagesMut>(
    p: &P,
    block: FileBlock,
    from: usize,
) -> Result<Vec<(u32, FileBlock)>, P::Error> {
    let image = p.image(block)?;
    let node = Node::parse(p.info(), &image, Form::of(block)).map_err(|e| p.at(block, e))?;
    Ok((from..node.count).map(|i| (node.hash(i), node.block(i))).collect())
}

/// Moves the entries with the higher hashes, about half of the bytes, to a new leaf.
///
/// The node above has room.
pub(super) fn split_leaf<P: PagesMut>(p: &P, path: &Path) -> Result<(), P::Error> {
    let info = *p.info();
    let live = read_leaf(p, path.leaf)?;
    let mut order: Vec<(u32, Moved)> =
        live.into_iter().map(|e| (path.hasher.hash(&e.name).major, e)).collect();
    order.sort_by_key(|(hash, _)| *hash);
    let Some(cut) = middle(&order) else {
        let error = Corrupt::field(Structure::Directory, "entries in a full leaf", 1u64);
        return Err(p.at(path.leaf, error).into());
    };
    let (low, high) = order.split_at(cut);
    let hash = high[0].0 | u32::from(low[cut - 1].0 == high[0].0);
    let (above, leaf) = (*path.bottom(), path.leaf);
    let new = p.append(BlockKind::Leaf)?;
    p.update(new, BlockKind::Leaf, |b| write_leaf(&info, b, high.iter().map(|(_, e)| e)))?;
    p.update(leaf, BlockKind::Leaf, |b| write_leaf(&info, b, low.iter().map(|(_, e)| e)))?;
    p.update(above.block, BlockKind::Index, |b| {
        add_slot(b, Form::of(above.block), above.at + 1, hash, new);
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
