//! Edits the bytes of one node.
//!
//! Readers rely only on the checks of the header in `check`. Edits fail if an entry does not exist
//! or does not fit, even if the caller has checked: on a damaged volume two trees may share the
//! node.

use super::super::{Extent, ExtentState};
use nextent_num::to_u64;
use nextent_ondisk::extent::{self, Index, Node, NodeMut};
use nextent_ondisk::{Corrupt, FileBlock, Structure};
use nextent_sync::{searches, writes};

/// The result of an edit. An error has changed nothing.
pub(super) type Edited<T = ()> = Result<T, Corrupt>;

/// The greatest length of an extent in `state`.
pub(super) fn max_len(state: ExtentState) -> u32 {
    extent::Extent::max_len(state == ExtentState::Unwritten)
}

/// Whether one extent can hold `a` and `b`: `b` begins where `a` ends, in the file and in the
/// volume, and they have the same state.
pub(super) fn can_merge(a: &Extent, b: &Extent) -> bool {
    a.end() == b.at
        && a.start.get() + u64::from(a.len) == b.start.get()
        && a.state == b.state
        && a.len + b.len <= max_len(a.state)
}

impl From<extent::Extent> for Extent {
    fn from(e: extent::Extent) -> Self {
        let state = if e.unwritten { ExtentState::Unwritten } else { ExtentState::Written };
        Self { at: e.block, start: e.start, len: e.len, state }
    }
}

impl From<&Extent> for extent::Extent {
    fn from(e: &Extent) -> Self {
        Self {
            block: e.at,
            len: e.len,
            start: e.start,
            unwritten: e.state == ExtentState::Unwritten,
        }
    }
}

/// The number of entries with a key of at most `at`.
pub(super) fn upper_bound(node: Node<'_>, at: u32) -> usize {
    let at = FileBlock(at);
    match node.len() {
        // Most searches are for the end of a growing file.
        count if count == 0 || node.key(count - 1) <= at => count,
        _ => {
            let found = node.find(at).map_or(0, |i| i + 1);
            searches(node.entries(), found);
            found
        }
    }
}

/// The most entries that the node can hold.
pub(super) fn capacity(node: Node<'_>, bytes: &[u8]) -> usize {
    usize::from(node.header().max.min(extent::capacity(bytes.len())))
}

/// `b` as a node, after a check that it has `old` entries from `at` on and room to replace them by
/// `new` ones.
fn open_for_edit(b: &mut [u8], at: usize, old: usize, new: usize) -> Result<NodeMut<'_>, Corrupt> {
    let view = Node::new(b)?;
    let (count, most) = (view.len(), capacity(view, b));
    if at + old > count || count - old + new > most {
        return Err(Corrupt::field(Structure::ExtentNode, "eh_entries", to_u64(count)));
    }
    NodeMut::new(b)
}

/// Replaces the `old` extents from `at` by `new`.
pub(super) fn splice(b: &mut [u8], at: usize, old: usize, new: &[Extent]) -> Edited {
    let mut node = open_for_edit(b, at, old, new.len())?;
    node.splice(at, old, new.iter().map(Into::into));
    // If the number of entries changes, all entries after `at` move.
    let view = node.view();
    let end = if old == new.len() { at + old } else { view.len() };
    writes(view.entries().get(at..end).unwrap_or_default());
    Ok(())
}

/// Extends the extent before entry `at` by `e`, if they can merge and the blocks of `e` are a hole.
/// The extents of the next leaf begin at `bound`.
pub(super) fn extend(b: &mut [u8], at: usize, e: &Extent, bound: u32) -> Edited<bool> {
    let mut node = NodeMut::new(b)?;
    let view = node.view();
    let Some(last) = at.checked_sub(1).filter(|_| at <= view.len()) else { return Ok(false) };
    let left = Extent::from(view.extent(last));
    let next = if at < view.len() { view.key(at).get() } else { bound };
    // If an extent of this leaf begins right after `e`, it may merge too, which `edit` does.
    let fits = e.end().get() < next || (at == view.len() && e.end().get() == next);
    if !fits || !can_merge(&left, e) {
        return Ok(false);
    }
    node.set_extent(last, (&Extent { len: left.len + e.len, ..left }).into());
    Ok(true)
}

/// Inserts `child` before entry `at`.
pub(super) fn insert_child(b: &mut [u8], at: usize, child: Index) -> Edited {
    open_for_edit(b, at, 0, 1)?.insert_index(at, child);
    Ok(())
}

/// Removes the entries `from..to`.
pub(super) fn remove(b: &mut [u8], from: usize, to: usize) -> Edited {
    open_for_edit(b, from, to - from, 0)?.remove(from, to);
    Ok(())
}

/// Changes the key of entry `at`.
pub(super) fn set_key(b: &mut [u8], at: usize, key: u32) -> Edited {
    open_for_edit(b, at, 1, 1)?.set_key(at, FileBlock(key));
    Ok(())
}

/// Appends the entries of the node `from`, from `at` on, to `b`. They may be extents or indexes.
pub(super) fn append(b: &mut [u8], from: &[u8], at: usize) -> Edited {
    let count = Node::new(from)?.len().saturating_sub(at);
    let end = Node::new(b)?.len();
    let mut node = open_for_edit(b, end, 0, count)?;
    // The entries are copied as bytes, without checks.
    let mut source = from.to_vec();
    NodeMut::new(&mut source)?.move_tail(at, &mut node);
    Ok(())
}
