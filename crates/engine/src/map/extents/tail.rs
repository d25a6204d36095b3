//! The last extent of a file that has few: where files grow.

use super::super::{MapKind, MapRoot, State, after};
use super::node;
use nextent_ondisk::extent::{Node, NodeMut};
use nextent_ondisk::{BlockNo, FileBlock};

/// The end of all that a file maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    /// The first block of the file after all that are mapped.
    pub(crate) end: FileBlock,
    /// The block of the volume after the last one.
    pub(crate) after: BlockNo,
    /// What the last blocks are.
    pub(crate) state: State,
    /// How many blocks the last extent can take in.
    pub(crate) room: u32,
}

/// The last extent, if the root is a leaf and has one.
pub(in super::super) fn tail(root: &MapRoot) -> Option<Tail> {
    if root.kind() != MapKind::Extents {
        return None;
    }
    let node = Node::new(root.bytes()).ok().filter(|node| node.depth() == 0)?;
    let last = super::super::Extent::from(node.extent(node.len().checked_sub(1)?));
    let end = last.at.checked_add(last.len)?;
    let room = node::longest(last.state).saturating_sub(last.len).min(u32::MAX - end.get());
    Some(Tail { end, after: after(last.start, last.len), state: last.state, room })
}

/// Makes the extent that [`tail`] told of longer by `blocks`, at most its room; `copy` are the
/// root's bytes as the inode has them, changed likewise.
pub(in super::super) fn lengthen_tail(root: &mut MapRoot, copy: &mut [u8], blocks: u32) {
    // Reading back all bytes, of which a few were just stored, would wait for the store.
    lengthen(root.bytes_mut(), blocks);
    lengthen(copy, blocks);
}

fn lengthen(root: &mut [u8], blocks: u32) {
    let Ok(mut node) = NodeMut::new(root) else { return };
    let Some(last) = node.view().len().checked_sub(1) else { return };
    let mut extent = node.view().extent(last);
    extent.len += blocks;
    node.set_extent(last, extent);
}
