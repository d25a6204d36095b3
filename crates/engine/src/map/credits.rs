//! How many blocks of metadata a verb may have to write.
//!
//! A new node costs its own block and the bitmap and descriptor of its group.

use super::runs::GROUP_CREDITS;
use super::{MapKind, MapRoot};
use nextent_ondisk::Geometry;

const NEW_NODE: u32 = 1 + GROUP_CREDITS;
/// Fewest extents that an insertion adds before it needs another leaf.
const EXTENTS_PER_SPLIT: u32 = 32;

/// Extents that a root can hold.
const ROOT_EXTENTS: u32 = 4;

/// Credits for one [`super::insert`] of `len` blocks, without those for the
/// allocation of the blocks themselves.
#[must_use]
pub(crate) fn insert_credits(root: &MapRoot, geometry: &Geometry, len: u32) -> u32 {
    let depth = root.depth();
    let chunks = match root.kind() {
        MapKind::Extents => len / 32767 / EXTENTS_PER_SPLIT,
        MapKind::Indirect => len / (geometry.block_size / 4) + 1,
    };
    depth + (depth + 1 + chunks) * NEW_NODE
}

/// Credits with which [`super::convert`] and [`super::mark_unwritten`] get on.
#[must_use]
pub(crate) fn change_credits(root: &MapRoot) -> u32 {
    edit_credits(root.depth())
}

/// Credits with which [`super::remove`] gets on.
#[must_use]
pub(crate) fn remove_credits(root: &MapRoot, geometry: &Geometry) -> u32 {
    let groups = 32768 / geometry.blocks_per_group + 2;
    remove_fixed(root.depth()) + groups * GROUP_CREDITS
}

/// Credits with which [`super::remove`] takes all of a small file out at once; `None` for a map
/// for which that may be many.
#[must_use]
pub(crate) fn remove_all_credits(root: &MapRoot, geometry: &Geometry) -> Option<u32> {
    if root.kind() != MapKind::Extents || root.depth() > 0 {
        return None;
    }
    let groups = ROOT_EXTENTS * (32768 / geometry.blocks_per_group + 2);
    Some(remove_fixed(0) + groups * GROUP_CREDITS).filter(|&credits| credits <= 64)
}

/// Credits with which [`super::shift_left`] and [`super::shift_right`] get on.
#[must_use]
pub(crate) fn shift_credits(root: &MapRoot) -> u32 {
    edit_credits(root.depth())
}

/// For one edit of a leaf that may split every node above it.
pub(super) fn edit_credits(depth: u32) -> u32 {
    depth + (depth + 1) * NEW_NODE
}

/// For what one step of a removal does to the tree: an edit with splits, or
/// the dropping of every node of a path, with a block of revoke records, then a
/// collapse into the root.
pub(super) fn remove_fixed(depth: u32) -> u32 {
    edit_credits(depth) + depth * GROUP_CREDITS + 1
}
