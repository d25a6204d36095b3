//! The last extent of a file whose root is a leaf, for appends.

use super::super::{ExtentState, MapKind, MapRoot, block_after};
use super::node;
use nextent_ondisk::extent::{self, Node};
use nextent_ondisk::{BlockNo, FileBlock};

/// The last extent of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    /// The file block after the extent.
    pub(crate) end: FileBlock,
    /// The block of the volume after the extent.
    pub(crate) after: BlockNo,
    /// The state of the extent.
    pub(crate) state: ExtentState,
    /// The most blocks by which the extent can grow.
    pub(crate) room: u32,
    /// The extent's entry in the root, and its length.
    entry: (usize, u32),
}

impl Tail {
    /// The length of the extent in blocks.
    pub(crate) fn len(&self) -> u32 {
        self.entry.1
    }
}

/// See [`super::super::tail`].
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

/// See [`super::super::lengthen_tail`]. `blocks` must not exceed [`Tail::room`].
pub(in super::super) fn lengthen_tail(
    root: &mut MapRoot,
    copy: &mut [u8],
    tail: &Tail,
    blocks: u32,
) {
    let (at, len) = tail.entry;
    // Stores two bytes in each copy. Copying the root instead would read back bytes that were just
    // stored, which stalls until the store completes (failed store forwarding).
    for bytes in [root.bytes_mut().as_mut_slice(), copy] {
        extent::set_extent_len(bytes, at, len + blocks, tail.state == ExtentState::Unwritten);
    }
}
