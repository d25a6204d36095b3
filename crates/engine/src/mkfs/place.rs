//! Places the bitmaps and the inode table of each group.
//!
//! Without flexible groups each group keeps its own. With them the first group of a flex group
//! has all block bitmaps, then all inode bitmaps, then all tables, packed. A table never straddles
//! a backup superblock: it moves behind it whole. Placement is mke2fs's.

use nextent_num::to_usize;
use nextent_ondisk::{BlockNo, Geometry, GroupNo, Incompat};

use super::error::MkfsError;
use super::space::Space;

/// The three metadata areas of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) block_bitmap: BlockNo,
    pub(crate) inode_bitmap: BlockNo,
    pub(crate) inode_table: BlockNo,
}

impl Place {
    /// First block and length of each area.
    pub(crate) fn runs(&self, geometry: &Geometry) -> [(BlockNo, u64); 3] {
        let table = u64::from(geometry.inode_table_blocks);
        [(self.block_bitmap, 1), (self.inode_bitmap, 1), (self.inode_table, table)]
    }
}

/// How groups are packed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packing {
    /// Blocks between the positions of two neighbours' bitmaps, without flexible groups.
    pub(super) stride: u32,
    /// All metadata at the volume's start.
    pub(super) all_at_start: bool,
}

/// Takes superblocks, descriptors and the blocks reserved for them.
pub(super) fn take_heads(geometry: &Geometry, space: &mut Space) {
    for group in geometry.groups() {
        let head = geometry.head_blocks(group);
        let start = head.start.max(geometry.first_data_block.0);
        space.take(BlockNo(start), head.end - start);
    }
}

/// Places and takes the metadata of all groups.
///
/// # Errors
///
/// No room for it.
pub(super) fn place_all(
    geometry: &Geometry,
    packing: Packing,
    space: &mut Space,
) -> Result<Vec<Place>, MkfsError> {
    let mut places: Vec<Place> = Vec::with_capacity(to_usize(geometry.group_count));
    // Only flexible groups may keep their metadata elsewhere.
    if packing.all_at_start && geometry.features.has(Incompat::FLEX_BG) {
        let no_room = || MkfsError::TooSmall("no room for the metadata of all groups".into());
        return place_packed(geometry, space).ok_or_else(no_room);
    }
    for group in geometry.groups() {
        let place = place_group(geometry, packing.stride, space, group, places.last());
        let no_room = || MkfsError::TooSmall(format!("no room for the metadata of group {group}"));
        places.push(place.ok_or_else(no_room)?);
    }
    Ok(places)
}

/// Places and takes the metadata of one group. `before` is the place of the group before it.
pub(crate) fn place_group(
    geometry: &Geometry,
    stride: u32,
    space: &mut Space,
    group: GroupNo,
    before: Option<&Place>,
) -> Option<Place> {
    if geometry.flex_groups > 1 {
        place_flexible(geometry, space, group, before)
    } else {
        place_alone(geometry, stride, space, group)
    }
}

/// Places and takes the metadata of one group inside it.
pub(crate) fn place_inside(
    geometry: &Geometry,
    space: &mut Space,
    group: GroupNo,
) -> Option<Place> {
    place_alone(geometry, 0, space, group)
}

/// Takes the first `len` free blocks in `from..end`, or else in `again..end`.
fn take_run(space: &mut Space, from: u64, again: u64, end: u64, len: u64) -> Option<BlockNo> {
    let start = space.find(from, end, len).or_else(|| space.find(again, end, len))?;
    space.take(BlockNo(start), len);
    Some(BlockNo(start))
}

fn place_alone(
    geometry: &Geometry,
    stride: u32,
    space: &mut Space,
    group: GroupNo,
) -> Option<Place> {
    let first = geometry.group_first_block(group).0;
    let end = first + u64::from(geometry.group_blocks(group));
    let table_blocks = u64::from(geometry.inode_table_blocks);
    let mut start = first;
    if stride > 0 {
        let spread = space.next_free(first, end)?.start + table_blocks;
        if spread < end {
            start = spread + u64::from(stride) * u64::from(group.0) % (end - spread);
        }
        if start >= end - 1 {
            start = first;
        }
    }
    Some(Place {
        // mke2fs does not try the last block of a group for these.
        block_bitmap: take_run(space, start, first, end - 1, 1)?,
        inode_bitmap: take_run(space, start, first, end - 1, 1)?,
        inode_table: take_run(space, first, first, end, table_blocks)?,
    })
}

/// All block bitmaps first, then all inode bitmaps, then all tables, each at the first free place
/// behind the one before.
fn place_packed(geometry: &Geometry, space: &mut Space) -> Option<Vec<Place>> {
    let (first, end) = (geometry.first_data_block.0, geometry.blocks_count);
    let mut goal = first;
    let mut next = |len: u64| {
        let start = take_run(space, goal, first, end, len)?;
        goal = start.0;
        Some(start)
    };
    let mut places: Vec<Place> = geometry.groups().map(|_| Place::default()).collect();
    for place in &mut places {
        place.block_bitmap = next(1)?;
    }
    for place in &mut places {
        place.inode_bitmap = next(1)?;
    }
    for place in &mut places {
        place.inode_table = next(geometry.inode_table_blocks.into())?;
    }
    Some(places)
}

fn place_flexible(
    geometry: &Geometry,
    space: &mut Space,
    group: GroupNo,
    before: Option<&Place>,
) -> Option<Place> {
    let flex = geometry.flex_groups;
    let lead = group.0 / flex * flex;
    let last = lead.saturating_add(flex - 1).min(geometry.group_count - 1);
    let first = geometry.group_first_block(GroupNo(lead)).0;
    let last_blocks = u64::from(geometry.group_blocks(GroupNo(last)));
    let end = geometry.group_first_block(GroupNo(last)).0 + last_blocks;
    let table_blocks = u64::from(geometry.inode_table_blocks);
    if let Some(before) = before
        && group.0 != lead
    {
        let after = before.inode_table.0 + table_blocks;
        return Some(Place {
            block_bitmap: take_run(space, before.block_bitmap.0 + 1, first, end, 1)?,
            inode_bitmap: take_run(space, before.inode_bitmap.0 + 1, first, end, 1)?,
            inode_table: take_run(space, after, first, end, table_blocks)?,
        });
    }
    // The first group leaves space for the bitmaps of the others. A flex group with one group
    // leaves it for the groups that follow when the volume grows.
    let here = u64::from(last - lead + 1);
    let gap = if here == 1 { u64::from(flex) } else { here };
    let most = u64::from(geometry.blocks_per_group / 4);
    let start = space.find(first, end, here.min(most)).unwrap_or(first);
    let block_bitmap = take_run(space, start, first, end, 1)?;
    let inode_bitmap = take_run(space, block_bitmap.0 + gap, first, end, 1)?;
    let inode_table = take_run(space, inode_bitmap.0 + gap, first, end, table_blocks)?;
    Some(Place { block_bitmap, inode_bitmap, inode_table })
}
