//! Journal credits of the map's operations: the most blocks of metadata that one may change.
//!
//! A new node costs its own block, and the bitmap and the descriptor of its group.

use super::freed_runs::{GROUP_CREDITS, STEP_CREDITS};
use super::{BlockKind, MapKind, MapRoot, extents};
use nextent_ondisk::Geometry;
use nextent_store::REVOKES_PER_CREDIT;

const NEW_NODE: u32 = 1 + GROUP_CREDITS;
/// Fewest extents that insertions add before they need another leaf.
const EXTENTS_PER_SPLIT: u32 = 32;
/// Most credits for removing a file in the handle that unlinks it.
const MAX_REMOVE_ALL: u32 = 64;

/// Most tables of pointers that one insertion fills, not counting the one that it begins in.
const MAX_TABLES: u32 = 8;
/// Extents in a root.
const ROOT_EXTENTS: u32 = 4;
/// Blocks in the longest extent.
const MAX_EXTENT_LEN: u32 = 32768;

/// Most blocks that one [`super::insert`] may map, so that one handle can pay for all nodes.
#[must_use]
pub(crate) fn max_insert_len(root: &MapRoot, geometry: &Geometry) -> u32 {
    match root.kind() {
        MapKind::Extents => MAX_EXTENT_LEN - 1,
        MapKind::Indirect => MAX_TABLES * (geometry.block_size / 4),
    }
}

/// Credits for one [`super::insert`] of `len` blocks, without those for allocating the blocks.
#[must_use]
pub(crate) fn insert_credits(root: &MapRoot, geometry: &Geometry, len: u32) -> u32 {
    let depth = root.depth();
    let chunks = match root.kind() {
        MapKind::Extents => len / 32767 / EXTENTS_PER_SPLIT,
        MapKind::Indirect => len / (geometry.block_size / 4) + 1,
    };
    depth + (depth + 1 + chunks) * NEW_NODE
}

/// Credits for `blocks` insertions of one block each at the end of the file, without those for
/// allocating the blocks. The first insertion may split all nodes on its path, which makes room for
/// the others.
#[must_use]
pub(crate) fn append_credits(root: &MapRoot, geometry: &Geometry, blocks: u32) -> u32 {
    let splits = match root.kind() {
        MapKind::Extents => blocks / EXTENTS_PER_SPLIT,
        MapKind::Indirect => 0,
    };
    insert_credits(root, geometry, blocks) + splits * NEW_NODE
}

/// Credits with which [`super::convert`] and [`super::mark_unwritten`] make progress.
#[must_use]
pub(crate) fn change_credits(root: &MapRoot) -> u32 {
    edit_credits(root.depth())
}

/// Credits with which [`super::remove`] makes progress.
#[must_use]
pub(crate) fn remove_credits(root: &MapRoot, geometry: &Geometry) -> u32 {
    // One credit is for revoke records, so that a part of an extent can always be freed.
    remove_fixed(root.depth()) + (groups_of_extent(geometry) * GROUP_CREDITS + 1).min(STEP_CREDITS)
}

/// Credits with which one [`super::remove`] removes all of a small file. `None` if that may take
/// more than `MAX_REMOVE_ALL`.
#[must_use]
pub(crate) fn remove_all_credits(
    root: &MapRoot,
    geometry: &Geometry,
    contents: BlockKind,
) -> Option<u32> {
    if root.kind() != MapKind::Extents || root.depth() > 0 {
        return None;
    }
    let groups = (ROOT_EXTENTS * groups_of_extent(geometry)).min(geometry.group_count);
    let revokes = match contents {
        BlockKind::Metadata => extents::root_blocks(root.bytes()).div_ceil(REVOKES_PER_CREDIT),
        _ => 0,
    };
    let credits = remove_fixed(0) + groups.saturating_mul(GROUP_CREDITS).saturating_add(revokes);
    Some(credits).filter(|&credits| credits <= MAX_REMOVE_ALL)
}

/// The most groups that one extent overlaps.
fn groups_of_extent(geometry: &Geometry) -> u32 {
    (MAX_EXTENT_LEN / geometry.blocks_per_group + 2).min(geometry.group_count)
}

/// Credits with which [`super::shift_left`] and [`super::shift_right`] make progress.
#[must_use]
pub(crate) fn shift_credits(root: &MapRoot) -> u32 {
    edit_credits(root.depth())
}

/// Credits for one edit of a leaf that may split all nodes above it.
pub(super) fn edit_credits(depth: u32) -> u32 {
    depth + (depth + 1) * NEW_NODE
}

/// Credits for the changes of one step of a removal to the tree. That is an edit with splits, or
/// freeing all nodes of a path with a block of revoke records, and then a collapse into the root.
pub(super) fn remove_fixed(depth: u32) -> u32 {
    edit_credits(depth) + depth * GROUP_CREDITS + 1
}
