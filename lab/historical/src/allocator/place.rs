//! Blocks to groups and clusters in them, and back.

use nextent::lab_seams::alloc::{self, BlockRun, Core, buddy::Run};
use nextent_ondisk::{BlockNo, Corrupt, GroupNo};

/// A cluster of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) group: GroupNo,
    pub(super) at: u32,
}

/// Where a block lies, or nothing for a block of no group.
pub(super) fn find(core: &Core, block: BlockNo) -> Option<Place> {
    core.layout.find(block).map(|pos| in_group(core, pos))
}

fn in_group(core: &Core, pos: alloc::ClusterPos) -> Place {
    let layout = &core.layout;
    let at = layout.first_bit(layout.index(pos.region)) + pos.at;
    Place { group: layout.group(pos.region), at }
}

/// The first block at a place.
pub(super) fn block(core: &Core, place: Place) -> BlockNo {
    let first = core.geo.group_first_block(place.group).0;
    BlockNo(first + (u64::from(place.at) << core.geo.cluster_bits))
}

/// Clusters of a group as blocks.
pub(super) fn run(core: &Core, group: GroupNo, (at, n): Run) -> BlockRun {
    let start = block(core, Place { group, at });
    BlockRun { start, len: n << core.geo.cluster_bits }
}

/// The blocks `[start, start + len)` as pieces of groups.
///
/// # Errors
/// As [`alloc::Layout::pieces`].
pub(super) fn pieces(
    core: &Core,
    start: BlockNo,
    len: u32,
) -> Result<Vec<(GroupNo, Run)>, Corrupt> {
    let mut pieces: Vec<(GroupNo, Run)> = Vec::with_capacity(1);
    for (place, n) in core.layout.pieces(start, len)? {
        let place = in_group(core, place);
        match pieces.last_mut() {
            Some((group, run)) if *group == place.group => run.1 += n,
            _ => pieces.push((place.group, (place.at, n))),
        }
    }
    Ok(pieces)
}
