//! The last extent of a file that has few: where files grow.

use super::super::{ExtentState, MapKind, MapRoot, block_after};
use super::node;
use nextent_ondisk::extent::{self, Node};
use nextent_ondisk::{BlockNo, FileBlock};

/// The end of all that a file maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    /// The first block of the file after all that are mapped.
    pub(crate) end: FileBlock,
    /// The block of the volume after the last one.
    pub(crate) after: BlockNo,
    /// What the last blocks are.
    pub(crate) state: ExtentState,
    /// How many blocks the last extent can take in.
    pub(crate) room: u32,
    /// Which entry of the root the last extent is, and its length.
    entry: (usize, u32),
}

impl Tail {
    /// The blocks of the last extent.
    pub(crate) fn len(&self) -> u32 {
        self.entry.1
    }
}

/// The last extent, if the root is a leaf and has one.
pub(in super::super) fn tail(root: &MapRoot) -> Option<Tail> {
    if root.kind() != MapKind::Extents {
        return None;
    }
    let node = Node::new(root.bytes()).ok().filter(|node| node.depth() == 0)?;
    let at = node.len().checked_sub(1)?;
    let last = super::super::Extent::from(node.extent(at));
    let end = last.at.checked_add(last.len)?;
    let room = node::max_len(last.state).saturating_sub(last.len).min(u32::MAX - end.get());
    let after = block_after(last.start, last.len);
    Some(Tail { end, after, state: last.state, room, entry: (at, last.len) })
}

/// Makes the extent that [`tail`] told of just now longer by `blocks`, at most its room; `copy` are
/// the root's bytes as the inode has them, changed likewise.
pub(in super::super) fn lengthen_tail(
    root: &mut MapRoot,
    copy: &mut [u8],
    tail: &Tail,
    blocks: u32,
) {
    let (at, len) = tail.entry;
    // Two bytes each: reading back all of them, of which these were just stored, to copy the root
    // would wait for the store.
    for bytes in [root.bytes_mut().as_mut_slice(), copy] {
        extent::set_extent_len(bytes, at, len + blocks, tail.state == ExtentState::Unwritten);
    }
}
