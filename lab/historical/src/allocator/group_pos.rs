//! Conversion between blocks and clusters of groups.

use nextent::lab_seams::alloc::{self, BlockRun, Core, buddy::Run};
use nextent_ondisk::{BlockNo, Corrupt, GroupNo};

/// A cluster of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupPos {
    pub(super) group: GroupNo,
    pub(super) at: u32,
}

/// The position of a block. `None` for a block of no group.
pub(super) fn find(core: &Core, block: BlockNo) -> Option<GroupPos> {
    core.layout.find(block).map(|pos| in_group(core, pos))
}

fn in_group(core: &Core, pos: alloc::ClusterPos) -> GroupPos {
    let layout = &core.layout;
    let at = layout.first_bit(layout.index(pos.region)) + pos.at;
    GroupPos { group: layout.group(pos.region), at }
}

/// The first block of a cluster.
pub(super) fn block(core: &Core, pos: GroupPos) -> BlockNo {
    let first = core.geo.group_first_block(pos.group).0;
    BlockNo(first + (u64::from(pos.at) << core.geo.cluster_bits))
}

/// Clusters of a group as blocks.
pub(super) fn run(core: &Core, group: GroupNo, (at, n): Run) -> BlockRun {
    let start = block(core, GroupPos { group, at });
    BlockRun { start, len: n << core.geo.cluster_bits }
}

/// The blocks `[start, start + len)`, divided by group.
///
/// # Errors
/// As [`alloc::Layout::pieces`].
pub(super) fn pieces(
    core: &Core,
    start: BlockNo,
    len: u32,
) -> Result<Vec<(GroupNo, Run)>, Corrupt> {
    let mut pieces: Vec<(GroupNo, Run)> = Vec::with_capacity(1);
    for (pos, n) in core.layout.pieces(start, len)? {
        let pos = in_group(core, pos);
        match pieces.last_mut() {
            Some((group, run)) if *group == pos.group => run.1 += n,
            _ => pieces.push((pos.group, (pos.at, n))),
        }
    }
    Ok(pieces)
}
