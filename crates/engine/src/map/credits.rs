//! How many blocks of metadata a verb may have to write.
//!
//! A new node costs its own block and the bitmap and descriptor of its group.

use super::freed_runs::{GROUP_CREDITS, STEP_CREDITS};
use super::{BlockKind, MapKind, MapRoot, extents};
use nextent_ondisk::Geometry;
use nextent_store::REVOKES_PER_CREDIT;

const NEW_NODE: u32 = 1 + GROUP_CREDITS;
/// Fewest extents that an insertion adds before it needs another leaf.
const EXTENTS_PER_SPLIT: u32 = 32;
/// Credits for which a file is removed in the handle that takes its name.
const MOST_AT_ONCE: u32 = 64;

/// Tables of pointers that one insertion fills at most, besides the one that it begins in.
const MOST_TABLES: u32 = 8;
/// Extents that a root can hold.
const ROOT_EXTENTS: u32 = 4;
/// Blocks of the longest extent.
const LONGEST: u32 = 32768;

/// The most blocks that one [`super::insert`] is to map: a handle has to pay for all nodes.
#[must_use]
pub(crate) fn max_insert_len(root: &MapRoot, geometry: &Geometry) -> u32 {
    match root.kind() {
        MapKind::Extents => LONGEST - 1,
        MapKind::Indirect => MOST_TABLES * (geometry.block_size / 4),
    }
}

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

/// Credits for `blocks` insertions of one block each, one after the other at the end of the file,
/// without those for the allocation of the blocks themselves. The first one may split every node
/// on its path; after that there is room.
#[must_use]
pub(crate) fn append_credits(root: &MapRoot, geometry: &Geometry, blocks: u32) -> u32 {
    let splits = match root.kind() {
        MapKind::Extents => blocks / EXTENTS_PER_SPLIT,
        MapKind::Indirect => 0,
    };
    insert_credits(root, geometry, blocks) + splits * NEW_NODE
}

/// Credits with which [`super::convert`] and [`super::mark_unwritten`] get on.
#[must_use]
pub(crate) fn change_credits(root: &MapRoot) -> u32 {
    edit_credits(root.depth())
}

/// Credits with which [`super::remove`] gets on, in one step or in several.
#[must_use]
pub(crate) fn remove_credits(root: &MapRoot, geometry: &Geometry) -> u32 {
    // With one for revoke records: a part of an extent fits at least.
    remove_fixed(root.depth()) + (groups_of_extent(geometry) * GROUP_CREDITS + 1).min(STEP_CREDITS)
}

/// Credits with which [`super::remove`] takes all of a small file out at once; `None` for a map
/// for which that may be many.
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
    Some(credits).filter(|&credits| credits <= MOST_AT_ONCE)
}

/// The most groups that one extent lies in.
fn groups_of_extent(geometry: &Geometry) -> u32 {
    (LONGEST / geometry.blocks_per_group + 2).min(geometry.group_count)
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
