//! The inodes a new volume starts with, and the blocks that belong to them: bad blocks, root,
//! `lost+found`, the resize inode, the journal and the orphan file.
//!
//! Everything is decided here in a fixed order, so the same options give the same bytes. Nothing
//! is written: blocks are collected for [`super::write`].

use nextent_ondisk::inode::{BLOCK_AREA, EXTRA_SIZE, FileType, flags};
use nextent_ondisk::{BlockNo, DiskTime, Geometry, Incompat, Inode, InodeNo};

use super::error::MkfsError;
use super::space::{Run, Space};

/// The planned inodes and blocks.
pub(super) struct Files<'a> {
    pub(super) geometry: &'a Geometry,
    pub(super) space: &'a mut Space,
    pub(super) clock: DiskTime,
    /// Inodes with their bytes' fields, by number.
    pub(super) inodes: Vec<(InodeNo, Inode)>,
    /// Blocks with contents.
    pub(super) blocks: Vec<(BlockNo, Vec<u8>)>,
    /// Runs that must read as zeros apart from `blocks`.
    pub(super) zeroed: Vec<Run>,
    /// Directories made, for the counts of their groups.
    pub(super) directories: Vec<InodeNo>,
}

impl Files<'_> {
    /// An inode of this mode with the times and extra size that all have.
    pub(super) fn new_inode(&self, mode: u16) -> Inode {
        let extra = self.geometry.inode_size > 128;
        Inode {
            mode,
            links: 1,
            atime: self.clock,
            ctime: self.clock,
            mtime: self.clock,
            crtime: self.clock,
            extra_isize: if extra { EXTRA_SIZE } else { 0 },
            ..Inode::default()
        }
    }

    /// An inode that only root sees, for a file of the file system's own.
    pub(super) fn new_system_file(&self) -> Inode {
        self.new_inode(FileType::Regular.mode_bits() | 0o600)
    }

    fn no_room(what: &str) -> MkfsError {
        MkfsError::TooSmall(format!("no room for {what}"))
    }

    /// Takes the first free block at or after `goal`, around the end.
    pub(super) fn take_block(&mut self, goal: u64, what: &str) -> Result<BlockNo, MkfsError> {
        Ok(BlockNo(self.take_run(goal, 1, what)?.start))
    }

    /// Takes the first free blocks at or after `goal`, around the end, at most `most` in one
    /// piece.
    pub(super) fn take_run(&mut self, goal: u64, most: u64, what: &str) -> Result<Run, MkfsError> {
        let first = self.geometry.first_data_block.0;
        let end = self.geometry.blocks_count;
        let run = self.space.next_free(goal.max(first), end);
        let run = run.or_else(|| self.space.next_free(first, end));
        let mut run = run.ok_or_else(|| Self::no_room(what))?;
        run.len = run.len.min(most);
        self.space.take(BlockNo(run.start), run.len);
        Ok(run)
    }

    /// Takes `count` blocks from `goal` on, in as few pieces as the free space allows.
    pub(super) fn take_blocks(
        &mut self,
        goal: u64,
        count: u64,
        what: &str,
    ) -> Result<Vec<Run>, MkfsError> {
        let mut runs = Vec::new();
        let (mut goal, mut left) = (goal, count);
        while left > 0 {
            let run = self.take_run(goal, left, what)?;
            left -= run.len;
            goal = run.end();
            runs.push(run);
        }
        Ok(runs)
    }

    /// Whether files map their blocks by extents.
    pub(super) fn uses_extents(&self) -> bool {
        self.geometry.features.has(Incompat::EXTENTS)
    }

    /// Stores what the file occupies.
    pub(super) fn set_blocks(&self, inode: &mut Inode, blocks: u64) -> Result<(), MkfsError> {
        let sectors = blocks << (self.geometry.block_bits - 9);
        Ok(inode.set_sectors(self.geometry, sectors)?)
    }

    /// Adds the finished inode.
    pub(super) fn add(&mut self, ino: InodeNo, inode: Inode) {
        self.inodes.push((ino, inode));
    }

    /// A block of zeros to fill.
    pub(super) fn new_block(&self) -> Vec<u8> {
        vec![0; self.geometry.block_len()]
    }

    /// The highest inode in use: all below are in use or reserved.
    pub(super) fn highest_inode(&self) -> u32 {
        let used = self.inodes.iter().map(|(ino, _)| ino.0).max().unwrap_or(0);
        used.max(self.geometry.first_inode.0 - 1)
    }

    /// Makes the inode of bad blocks, of which there are none.
    pub(super) fn add_bad_blocks(&mut self) {
        let mut inode = self.new_inode(0);
        inode.links = 0;
        inode.extra_isize = 0;
        self.add(nextent_ondisk::numbers::BAD_BLOCKS_INO, inode);
    }

    /// Notes that blocks must read as zeros.
    pub(super) fn zero(&mut self, runs: &[Run]) {
        self.zeroed.extend_from_slice(runs);
    }

    /// Marks the inode as mapped by extents and stores their root.
    pub(super) fn set_root(inode: &mut Inode, root: [u8; BLOCK_AREA], extents: bool) {
        inode.block = root;
        if extents {
            inode.flags |= flags::EXTENTS;
        }
    }
}
