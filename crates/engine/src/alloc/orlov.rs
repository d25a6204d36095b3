//! Choice of a group for a new inode: the Orlov allocator.
//!
//! - A file goes into its directory's group.
//! - Directories in the root spread over the volume.
//! - Other directories stay in their parent's flex group while it has enough inodes and clusters.
//!
//! The counts are those of the last commit, so that reading them moves no cache line. If a group is
//! full since, the search continues with the next group.

use super::core::Core;
use nextent_ondisk::InodeNo;
use nextent_ondisk::{GroupNo, numbers};
use nextent_sync::atomic::Ordering;

/// Most flex groups that the search for a directory compares.
const MAX_COMPARED: u32 = 64;

/// Sums over one flex group.
#[derive(Default)]
struct FlexTotals {
    inodes: u64,
    clusters: u64,
    dirs: u64,
}

fn flex_totals(core: &Core, number: u32) -> FlexTotals {
    let mut sum = FlexTotals::default();
    for group in members(core, number) {
        let info = core.group(group);
        if !core.is_bad(group) {
            sum.inodes += u64::from(info.free_inodes.load(Ordering::Relaxed));
            sum.clusters += u64::from(info.free_clusters.load(Ordering::Relaxed));
            sum.dirs += u64::from(info.used_dirs.load(Ordering::Relaxed));
        }
    }
    sum
}

fn flex_count(core: &Core) -> u32 {
    core.geo.group_count.div_ceil(core.geo.flex_groups)
}

fn members(core: &Core, flex: u32) -> impl Iterator<Item = GroupNo> + use<> {
    let first = flex * core.geo.flex_groups;
    (first..core.geo.group_count.min(first + core.geo.flex_groups)).map(GroupNo)
}

/// All groups in the order in which a file of `parent` should try them.
pub(crate) fn for_file(core: &Core, parent: InodeNo) -> impl Iterator<Item = GroupNo> {
    let group = core.geo.inode_group(parent).map_or(GroupNo(0), |(group, _)| group);
    all_groups_from(core, group)
}

/// All groups in the order in which a directory of `parent` should try them.
pub(crate) fn for_dir(core: &Core, parent: InodeNo, hash: u32) -> impl Iterator<Item = GroupNo> {
    let parent_group = core.geo.inode_group(parent).map_or(GroupNo(0), |(group, _)| group);
    let count = flex_count(core);
    let chosen = if parent == numbers::ROOT_INO {
        spread_dir(core, hash % count)
    } else {
        nearby_flex(core, core.geo.flex_group_of(parent_group))
    };
    let start = match chosen {
        Some(flex) if flex == core.geo.flex_group_of(parent_group) => parent_group,
        Some(flex) => GroupNo(flex * core.geo.flex_groups),
        None => parent_group,
    };
    all_groups_from(core, start)
}

/// The flex group with the fewest directories, of those from `start` on with at least 7/8 of the
/// average free inodes and clusters. The margin allows for backups of the superblock.
fn spread_dir(core: &Core, start: u32) -> Option<u32> {
    let count = flex_count(core);
    let sums = core.totals.sums();
    let share = |sum: u64| sum / u64::from(count) / 8 * 7;
    let candidates = (0..count.min(MAX_COMPARED)).map(|i| (start + i) % count);
    let good = candidates.map(|number| (number, flex_totals(core, number))).filter(|(_, have)| {
        have.inodes > 0
            && have.inodes >= share(sums.free_inodes)
            && have.clusters >= share(sums.free_clusters)
    });
    good.min_by_key(|(_, have)| have.dirs).map(|(number, _)| number)
}

/// The first flex group, from the parent's on, that is not much fuller than the average.
fn nearby_flex(core: &Core, parent: u32) -> Option<u32> {
    let geo = &core.geo;
    let count = flex_count(core);
    let sums = core.totals.sums();
    let average = |sum: u64| sum / u64::from(count);
    let all_inodes = u64::from(geo.inodes_per_group) * u64::from(geo.flex_groups);
    let all_clusters = u64::from(geo.clusters_per_group) * u64::from(geo.flex_groups);
    let most_dirs = average(sums.used_dirs) + all_inodes / 16;
    let least_inodes = average(sums.free_inodes).saturating_sub(all_inodes / 4).max(1);
    let least_clusters = average(sums.free_clusters).saturating_sub(all_clusters / 4);
    (0..count.min(MAX_COMPARED)).map(|i| (parent + i) % count).find(|&number| {
        let have = flex_totals(core, number);
        have.dirs < most_dirs.max(1)
            && have.inodes >= least_inodes
            && have.clusters >= least_clusters
    })
}

/// Each group once: the flex group of `start` from `start` on, wrapping around, then the groups of
/// the other flex groups.
fn all_groups_from(core: &Core, start: GroupNo) -> impl Iterator<Item = GroupNo> {
    let size = core.geo.flex_groups;
    let groups = core.geo.group_count;
    let first = start.0 / size * size;
    let end = groups.min(first.saturating_add(size));
    let own = (start.0..end).chain(first..start.0);
    own.chain(end..groups).chain(0..first).map(GroupNo)
}
