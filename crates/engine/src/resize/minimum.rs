//! Finds the smallest size.
//!
//! The blocks in use give a lower bound. Trials find how many more are needed: maps of files that
//! move in pieces grow, and inode tables need blocks in one piece.

use nextent_device::BlockDevice;
use nextent_ondisk::{Geometry, GroupNo, Superblock};
use nextent_sync::Arc;

use super::ResizeOptions;
use super::target::Target;
use super::volume::Volume;
use crate::error::{Error, Result};

/// Blocks in use apart from heads, bitmaps and inode tables; and inodes in use.
struct Needs {
    blocks: u64,
    inodes: u64,
}

/// Finds the fewest blocks that the volume can have.
pub(super) fn find(
    device: &Arc<dyn BlockDevice>,
    sb: &Superblock,
    options: &ResizeOptions,
) -> Result<u64> {
    let volume = Volume::read(device, sb.clone(), true)?;
    let geo = volume.geo.clone();
    let needs = Needs::of(&volume);
    let least = needs.least(sb, &geo, options)?;
    let (mut more, mut failed) = (0, None);
    loop {
        let blocks = least + more;
        if blocks >= geo.blocks_count {
            return Ok(geo.blocks_count);
        }
        let target = Target::new(sb, &geo, blocks, options);
        let fits = target.and_then(|target| {
            let found = target.geo.blocks_count;
            super::attempt(device, sb, &target).map(|()| found)
        });
        match fits {
            Ok(found) => return refine(device, (sb, &geo, options), failed, found),
            Err(error) if is_too_small(&error) => failed = Some(blocks),
            Err(error) => return Err(error),
        }
        more = (more * 2).max(16);
    }
}

/// Halves the distance between a size that is too small and one that fits, a few times.
fn refine(
    device: &Arc<dyn BlockDevice>,
    (sb, geo, options): (&Superblock, &Geometry, &ResizeOptions),
    failed: Option<u64>,
    found: u64,
) -> Result<u64> {
    let (mut low, mut high) = (failed.unwrap_or(found), found);
    while high.saturating_sub(low) > (high / 256).max(16) {
        let middle = low + (high - low) / 2;
        let fits = Target::new(sb, geo, middle, options).and_then(|target| {
            super::attempt(device, sb, &target).map(|()| target.geo.blocks_count)
        });
        match fits {
            Ok(blocks) => high = blocks,
            Err(error) if is_too_small(&error) => low = middle,
            Err(error) => return Err(error),
        }
    }
    Ok(high)
}

/// Whether a trial found no room, or something that cannot move: a larger size may need no move.
fn is_too_small(error: &Error) -> bool {
    matches!(error, Error::NoSpace | Error::NoInodes | Error::Unsupported(_))
}

impl Needs {
    fn of(volume: &Volume) -> Self {
        let geo = &volume.geo;
        let used = geo.groups().zip(&volume.descs).map(|(group, desc)| {
            u64::from(geo.group_blocks(group).saturating_sub(desc.free_clusters))
        });
        let inodes = volume.descs.iter();
        let inodes = inodes.map(|desc| u64::from(geo.inodes_per_group - desc.free_inodes));
        let used: u64 = used.sum();
        Self { blocks: used.saturating_sub(metadata(geo)), inodes: inodes.sum() }
    }

    /// The fewest blocks that have room for all this by their number.
    fn least(&self, sb: &Superblock, geo: &Geometry, options: &ResizeOptions) -> Result<u64> {
        let per_group = u64::from(geo.blocks_per_group);
        let first = geo.first_data_block.0;
        let fits = |groups: u32| -> Result<Option<u64>> {
            let all = (first + u64::from(groups) * per_group).min(geo.blocks_count);
            let target = match Target::new(sb, geo, all, options) {
                Ok(target) => target.geo,
                Err(Error::NoSpace) => return Ok(None),
                Err(error) => return Err(error),
            };
            let blocks = first + metadata(&target) + self.blocks;
            let inodes = u64::from(target.inodes_count);
            Ok((blocks <= target.blocks_count && self.inodes <= inodes).then_some(blocks))
        };
        let (mut low, mut high) = (0, geo.group_count);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match fits(middle)? {
                Some(_) => high = middle,
                None => low = middle,
            }
        }
        let blocks = fits(high)?.unwrap_or(geo.blocks_count);
        // Fewer blocks in the last group would give it up.
        let start = first + u64::from(high - 1) * per_group;
        Ok(blocks.max(start + 1).min(geo.blocks_count))
    }
}

/// Blocks of heads, bitmaps and inode tables.
fn metadata(geo: &Geometry) -> u64 {
    let head = |group: GroupNo| {
        let head = geo.head_blocks(group);
        head.end - head.start.max(geo.first_data_block.0)
    };
    let heads: u64 = geo.groups().map(head).sum();
    heads + u64::from(geo.group_count) * (2 + u64::from(geo.inode_table_blocks))
}
