//! The extent tree of ext4.
//!
//! | module | responsibility |
//! |---|---|
//! | `node` | edits the bytes of one node, without regard to the tree |
//! | `check` | validates nodes and extents |
//! | `path` | finds the path from the root to a block |
//! | `edit` | replaces extents of one leaf and updates the keys above it |
//! | `grow` | adds levels, splits nodes, adds branches |
//!
//! The other modules implement the operations of the [map](super::super) on top of these.

mod check;
mod convert;
mod edit;
mod extent_state;
mod grow;
mod insert;
mod lookup;
mod node;
mod path;
mod remove;
mod shift;
mod tail;

pub(super) use check::check_root;
pub(super) use convert::convert_runs;
pub(super) use extent_state::set_state;
#[cfg(feature = "lab")]
pub(super) use extent_state::split;
pub(super) use insert::insert;
pub(super) use lookup::{lookup, lookup_near, next_extent, visit_nodes};
pub(super) use path::Image;
pub(super) use remove::remove;
pub(super) use shift::{shift_left, shift_right};
pub(crate) use tail::Tail;
pub(super) use tail::{lengthen_tail, tail};

use nextent_num::usize_of_u16;
use nextent_ondisk::extent::{Node, NodeMut};

/// Most levels below the root. They suffice for 2^32 blocks.
const MAX_DEPTH: usize = usize_of_u16(nextent_ondisk::extent::MAX_DEPTH);

/// Initialises `bytes` as the root of an empty tree.
pub(super) fn init_root(bytes: &mut [u8]) {
    NodeMut::init(bytes, 0);
}

/// The number of blocks that the extents of a leaf root map.
pub(super) fn root_blocks(bytes: &[u8]) -> u32 {
    let lens =
        |node: Node<'_>| node.extents().map(|extent| extent.len).fold(0, u32::saturating_add);
    Node::new(bytes).map_or(0, lens)
}

/// The depth of a root. It was checked when it was loaded.
pub(super) fn root_depth(bytes: &[u8]) -> u32 {
    Node::new(bytes).map_or(0, |node| u32::from(node.depth()))
}
