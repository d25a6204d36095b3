//! Makes the groups that a volume gains.
//!
//! They lie behind the old end, so nothing of the old volume is written, except that the metadata
//! of new groups may lie in groups that exist, and that the last descriptor block gets more
//! entries.

use std::ops::Range;

use nextent_num::{must_fit, to_usize};
use nextent_ondisk::group_desc::{self, flags};
use nextent_ondisk::{BlockNo, Geometry, GroupDesc, GroupNo, bitmap};

use super::volume::Volume;
use crate::error::{Error, Result};
use crate::mkfs::{Place, Space, place_group, place_inside};

/// New groups, and where their metadata is.
pub(super) struct NewGroups {
    first: u32,
    places: Vec<Place>,
    /// What is taken of the new blocks, and of the groups whose metadata is together with theirs.
    space: Space,
}

impl NewGroups {
    /// Blocks of metadata of new groups in `within`.
    pub(super) fn taken_in(&self, within: &Range<u64>) -> Vec<Range<u64>> {
        let runs = self.space.taken_in(within.start, within.end);
        runs.map(|run| run.start..run.end()).collect()
    }
}

impl Volume {
    /// Finds places for the metadata of the groups that `new` has and the volume does not, and
    /// allocates those in groups that exist.
    pub(super) fn place_new_groups(&mut self, new: &Geometry) -> Result<NewGroups> {
        let first = self.geo.group_count;
        let end = self.geo.blocks_count;
        let lead = first / new.flex_groups * new.flex_groups;
        let mut space = Space::default();
        for group in (lead.min(first)..first).map(GroupNo) {
            let start = self.geo.group_first_block(group).0;
            let len = self.geo.group_blocks(group);
            let bits = self.block_bitmap(group)?;
            let mut at = 0;
            while let Some(from) = bitmap::find_set(bits, at, len) {
                at = bitmap::find_clear(bits, from, len).unwrap_or(len);
                space.take(BlockNo(start + u64::from(from)), u64::from(at - from));
            }
        }
        // The head of the last group may reach beyond the old end.
        for group in (first - 1..new.group_count).map(GroupNo) {
            let head = new.head_blocks(group);
            let start = head.start.max(end);
            space.take(BlockNo(start), head.end.saturating_sub(start));
        }
        let desc = self.descs[to_usize(first - 1)];
        let mut before = Some(Place {
            block_bitmap: desc.block_bitmap,
            inode_bitmap: desc.inode_bitmap,
            inode_table: desc.inode_table,
        });
        let mut places = Vec::with_capacity(to_usize(new.group_count - first));
        for group in (first..new.group_count).map(GroupNo) {
            let place = place_group(new, 0, &mut space, group, before.as_ref());
            let place = match place {
                Some(place) => place,
                // The flex group is full.
                None => place_inside(new, &mut space, group).ok_or(Error::NoSpace)?,
            };
            before = Some(place);
            for (block, len) in place.runs(new) {
                let within = block.0..(block.0 + len).min(end);
                if within.start < within.end {
                    self.mark(within, true)?;
                }
            }
            places.push(place);
        }
        Ok(NewGroups { first, places, space })
    }

    /// Writes bitmaps, tables and descriptors of the new groups. Returns their descriptors.
    pub(super) fn write_new_groups(
        &mut self,
        new: &Geometry,
        groups: &NewGroups,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<GroupDesc>> {
        let mut descs = Vec::with_capacity(groups.places.len());
        let steps = u64::from(new.group_count - groups.first);
        for (group, place) in (groups.first..new.group_count).map(GroupNo).zip(&groups.places) {
            descs.push(self.write_group(new, group, place, &groups.space)?);
            progress(u64::from(group.0 + 1 - groups.first), steps);
        }
        let size = usize::from(new.desc_size);
        let per_block = new.descs_per_block;
        for index in groups.first / per_block..new.gdt_blocks() {
            let block = new.gdt_block(index);
            let mut bytes = match index < self.geo.gdt_blocks() {
                true => self.block(block)?,
                false => vec![0; new.block_len()],
            };
            for (group, slot) in (index * per_block..).zip(bytes.chunks_exact_mut(size)) {
                let desc = group.checked_sub(groups.first).and_then(|at| descs.get(to_usize(at)));
                if let Some(desc) = desc {
                    slot.fill(0);
                    desc.write(slot);
                    group_desc::seal(new, GroupNo(group), slot);
                }
            }
            self.write(block, &bytes)?;
        }
        Ok(descs)
    }

    fn write_group(
        &self,
        new: &Geometry,
        group: GroupNo,
        place: &Place,
        space: &Space,
    ) -> Result<GroupDesc> {
        let start = new.group_first_block(group).0;
        let len = new.group_blocks(group);
        let mut bits = vec![0; new.block_len()];
        for run in space.taken_in(start, start + u64::from(len)) {
            bitmap::set_run(&mut bits, must_fit(run.start - start), must_fit(run.len));
        }
        let mut desc = GroupDesc {
            block_bitmap: place.block_bitmap,
            inode_bitmap: place.inode_bitmap,
            inode_table: place.inode_table,
            free_clusters: bitmap::count_clear(&bits, len),
            free_inodes: new.inodes_per_group,
            ..GroupDesc::default()
        };
        let implied = bitmap::implied(new, group, &desc);
        let last = group.0 + 1 == new.group_count;
        let mut uninit = 0;
        if new.features.group_csum() && !last && bits[..implied.len()] == implied {
            uninit = flags::BLOCK_UNINIT;
        } else {
            bitmap::pad(&mut bits, len);
            if new.features.metadata_csum() {
                desc.block_bitmap_csum = bitmap::block_checksum(new, &bits);
            }
            self.write(desc.block_bitmap, &bits)?;
        }
        let zeroed = self.zero_table(new, place.inode_table)?;
        if new.features.group_csum() {
            desc.flags =
                uninit | flags::INODE_UNINIT | if zeroed { flags::INODE_ZEROED } else { 0 };
            desc.itable_unused = new.inodes_per_group;
        } else {
            let mut bits = vec![0; new.block_len()];
            bitmap::pad(&mut bits, new.inodes_per_group);
            self.write(desc.inode_bitmap, &bits)?;
        }
        Ok(desc)
    }

    /// Zeroes an inode table where a reader would see its old contents. Returns whether all of it
    /// reads as zeros.
    fn zero_table(&self, new: &Geometry, table: BlockNo) -> Result<bool> {
        let start = table.0 << new.block_bits;
        let len = u64::from(new.inode_table_blocks) << new.block_bits;
        let hole = match self.device.next_data(start) {
            Ok(data) => data.is_none_or(|data| data.start >= start + len),
            Err(_) => false,
        };
        if hole || new.features.group_csum() || self.trial {
            return Ok(hole);
        }
        let zeroed = self.device.write_zeroes(start, len);
        zeroed.map_err(|error| self.io("write", table, &error))?;
        Ok(true)
    }
}
