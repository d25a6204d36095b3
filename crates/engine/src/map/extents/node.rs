//! The bytes of one node: thin words over the format's own view of it.
//!
//! Readers trust nothing but what `check::header` looked at. Writers refuse what
//! would not fit instead of trusting their caller, because in a damaged image
//! two trees may share the node.

use super::super::{Extent, ExtentState};
use nextent_num::to_u64;
use nextent_ondisk::extent::{self, Index, Node, NodeMut};
use nextent_ondisk::{Corrupt, FileBlock, Structure};
use nextent_sync::{searches, writes};

/// The outcome of an edit; an error has changed nothing.
pub(super) type Edited<T = ()> = Result<T, Corrupt>;

/// The longest extent of `state`.
pub(super) fn max_len(state: ExtentState) -> u32 {
    extent::Extent::max_len(state == ExtentState::Unwritten)
}

/// Whether `b` begins where `a` ends, in the file and in the volume, and one
/// extent may hold both.
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

/// How many of the entries have a key of at most `at`.
pub(super) fn upper_bound(node: Node<'_>, at: u32) -> usize {
    let at = FileBlock(at);
    match node.len() {
        // Most searches are for the end of a file that grows.
        count if count == 0 || node.key(count - 1) <= at => count,
        _ => {
            let found = node.find(at).map_or(0, |i| i + 1);
            searches(node.entries(), found);
            found
        }
    }
}

/// Entries that the node may have.
pub(super) fn capacity(node: Node<'_>, bytes: &[u8]) -> usize {
    usize::from(node.header().max.min(extent::capacity(bytes.len())))
}

/// `b` as a node whose `old` entries from `at` may be replaced by `new` ones.
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
    // All behind are moved.
    let view = node.view();
    let end = if old == new.len() { at + old } else { view.len() };
    writes(view.entries().get(at..end).unwrap_or_default());
    Ok(())
}

/// Lets the extent before `at` grow by `e` if it ends where `e` begins and
/// nothing lies up to the end of `e`; the next node's extents begin at `bound`.
pub(super) fn extend(b: &mut [u8], at: usize, e: &Extent, bound: u32) -> Edited<bool> {
    let mut node = NodeMut::new(b)?;
    let view = node.view();
    let Some(last) = at.checked_sub(1).filter(|_| at <= view.len()) else { return Ok(false) };
    let left = Extent::from(view.extent(last));
    let next = if at < view.len() { view.key(at).get() } else { bound };
    // An extent that begins right after `e` may join too: not here.
    let fits = e.end().get() < next || (at == view.len() && e.end().get() == next);
    if !fits || !can_merge(&left, e) {
        return Ok(false);
    }
    node.set_extent(last, (&Extent { len: left.len + e.len, ..left }).into());
    Ok(true)
}

/// Puts `child` before the entry `at`.
pub(super) fn insert_child(b: &mut [u8], at: usize, child: Index) -> Edited {
    open_for_edit(b, at, 0, 1)?.insert_index(at, child);
    Ok(())
}

/// Takes the entries `from..to` out.
pub(super) fn remove(b: &mut [u8], from: usize, to: usize) -> Edited {
    open_for_edit(b, from, to - from, 0)?.remove(from, to);
    Ok(())
}

/// Gives the entry `at` another key.
pub(super) fn set_key(b: &mut [u8], at: usize, key: u32) -> Edited {
    open_for_edit(b, at, 1, 1)?.set_key(at, FileBlock(key));
    Ok(())
}

/// Appends the entries of `from` from `at` on, whatever they are, to `b`.
pub(super) fn append(b: &mut [u8], from: &[u8], at: usize) -> Edited {
    let count = Node::new(from)?.len().saturating_sub(at);
    let end = Node::new(b)?.len();
    let mut node = open_for_edit(b, end, 0, count)?;
    // Entries are moved as bytes: nobody looked at each of them.
    let mut source = from.to_vec();
    NodeMut::new(&mut source)?.move_tail(at, &mut node);
    Ok(())
}
