//! Taking blocks of the new volume, first free first.
//!
//! A [`Room`] can give back all blocks that it took, so that a file for which space runs out
//! leaves nothing behind.

use nextent_ondisk::{BlockNo, Geometry, Inode, InodeNo};

use super::error::MkfsError;
use super::space::{Run, Space};

/// The purpose of blocks, for the error when there are none.
pub(super) enum What {
    Block(&'static str),
    File(InodeNo),
}

/// The volume's blocks, and those that were just filled.
pub(super) struct Room<'a> {
    pub(super) geometry: &'a Geometry,
    pub(super) space: &'a mut Space,
    /// Blocks with contents.
    pub(super) blocks: Vec<(BlockNo, Vec<u8>)>,
    /// What was taken.
    taken: Vec<Run>,
}

impl<'a> Room<'a> {
    /// Nothing taken yet.
    pub(super) fn new(geometry: &'a Geometry, space: &'a mut Space) -> Self {
        Self { geometry, space, blocks: Vec::new(), taken: Vec::new() }
    }

    fn no_room(what: &What) -> MkfsError {
        MkfsError::TooSmall(match what {
            What::Block(what) => format!("no room for {what}"),
            What::File(ino) => format!("no room for inode {ino}"),
        })
    }

    /// Takes the first free block at or after `goal`, around the end.
    pub(super) fn take_block(&mut self, goal: u64, what: What) -> Result<BlockNo, MkfsError> {
        Ok(BlockNo(self.take_run(goal, 1, what)?.start))
    }

    /// Takes the first free blocks at or after `goal`, around the end, at most `most` in one
    /// piece.
    pub(super) fn take_run(&mut self, goal: u64, most: u64, what: What) -> Result<Run, MkfsError> {
        let first = self.geometry.first_data_block.0;
        let end = self.geometry.blocks_count;
        let run = self.space.next_free(goal.max(first), end);
        let run = run.or_else(|| self.space.next_free(first, end));
        let mut run = run.ok_or_else(|| Self::no_room(&what))?;
        run.len = run.len.min(most);
        self.space.take(BlockNo(run.start), run.len);
        self.taken.push(run);
        Ok(run)
    }

    /// The block after what was taken last; `goal` if nothing was.
    pub(super) fn next(&self, goal: u64) -> u64 {
        self.taken.last().map_or(goal, |run| run.end())
    }

    /// Gives back everything that was taken.
    pub(super) fn undo(&mut self) {
        self.blocks.clear();
        for run in self.taken.drain(..) {
            self.space.give_back(BlockNo(run.start), run.len);
        }
    }

    /// Stores what the file occupies.
    pub(super) fn set_blocks(&self, inode: &mut Inode, blocks: u64) -> Result<(), MkfsError> {
        let sectors = blocks << (self.geometry.block_bits - 9);
        Ok(inode.set_sectors(self.geometry, sectors)?)
    }

    /// A block of zeros to fill.
    pub(super) fn new_block(&self) -> Vec<u8> {
        vec![0; self.geometry.block_len()]
    }
}
