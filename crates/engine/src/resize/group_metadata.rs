//! Moves the bitmaps and inode tables of groups out of the blocks that the new layout needs.
//!
//! A table needs many blocks in one piece. Its new place is chosen before files move, and files
//! leave that place, too.

use std::ops::Range;

use nextent_num::to_usize;
use nextent_ondisk::group_desc::flags;
use nextent_ondisk::{BlockNo, Geometry, GroupNo};

use super::contiguous::Fixed;
use super::vacate::Vacated;
use super::volume::Volume;
use crate::error::Result;

/// A bitmap or table that moves.
pub(super) struct Move {
    group: GroupNo,
    part: Part,
    from: Range<u64>,
    to: Range<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Part {
    BlockBitmap,
    InodeBitmap,
    Table,
}

impl Move {
    /// The new place.
    pub(super) fn to(&self) -> Range<u64> {
        self.to.clone()
    }
}

impl Volume {
    /// Chooses new places for metadata of the groups of the new layout that is in `vacated`.
    pub(super) fn plan_group_metadata(
        &mut self,
        new: &Geometry,
        vacated: &Vacated,
    ) -> Result<Vec<Move>> {
        let mut fixed = None;
        let mut moves = Vec::new();
        for group in (0..new.group_count.min(self.geo.group_count)).map(GroupNo) {
            let parts = [Part::BlockBitmap, Part::InodeBitmap, Part::Table];
            for (part, from) in parts.into_iter().zip(self.metadata_runs(group)) {
                let len = from.end - from.start;
                if vacated.touches(BlockNo(from.start), len) {
                    let fixed = fixed.get_or_insert_with(|| Fixed::new(self, new, vacated));
                    let to = self.choose_place(group, len, fixed)?;
                    moves.push(Move { group, part, from, to });
                }
            }
        }
        Ok(moves)
    }

    /// Moves metadata to the places that were chosen and that files have left.
    pub(super) fn move_group_metadata(&mut self, moves: Vec<Move>) -> Result<()> {
        for Move { group, part, from, to } in moves {
            // A bitmap that is not initialized implies the old places.
            self.block_bitmap(group)?;
            self.inode_bitmap(group)?;
            self.mark(to.clone(), true)?;
            let start = BlockNo(to.start);
            if let Part::Table = part {
                self.copy(from.start, &to)?;
                self.table_moved(from.clone(), start);
            }
            let desc = &mut self.descs[to_usize(group.0)];
            match part {
                Part::BlockBitmap => desc.block_bitmap = start,
                Part::InodeBitmap => desc.inode_bitmap = start,
                Part::Table => desc.inode_table = start,
            }
            desc.flags &= !flags::BLOCK_UNINIT;
            self.changed.insert(group.0);
            self.moved_blocks += from.end - from.start;
            self.free(from)?;
            self.commit_if_full()?;
        }
        self.commit()
    }

    /// The blocks of a group's bitmaps and inode table.
    pub(super) fn metadata_runs(&self, group: GroupNo) -> [Range<u64>; 3] {
        let desc = &self.descs[to_usize(group.0)];
        let run = |block: BlockNo, len: u64| block.0..block.0 + len;
        [
            run(desc.block_bitmap, 1),
            run(desc.inode_bitmap, 1),
            run(desc.inode_table, self.geo.inode_table_blocks.into()),
        ]
    }
}
