//! The inodes that a new volume starts with, and their blocks: bad blocks, root,
//! `lost+found`, the resize inode, the journal and the orphan file.
//!
//! Everything is decided here in a fixed order, so the same options give the same bytes. Nothing
//! is written: blocks are collected for [`super::write`].

use std::slice;

use nextent_ondisk::inode::{EXTRA_SIZE, FileType};
use nextent_ondisk::{BlockNo, DiskTime, Geometry, Incompat, Inode, InodeNo};

use super::error::MkfsError;
use super::room::Room;
use super::space::Run;

/// The planned inodes and blocks.
pub(super) struct Files<'a> {
    pub(super) geometry: &'a Geometry,
    pub(super) room: Room<'a>,
    pub(super) clock: DiskTime,
    /// Inodes by number.
    pub(super) inodes: Vec<(InodeNo, Inode)>,
    /// Runs that must read as zeros apart from `blocks`.
    pub(super) zeroed: Vec<Run>,
    /// Directories made, and their blocks.
    pub(super) directories: Vec<(InodeNo, Vec<BlockNo>)>,
}

/// An inode of this mode, made at `clock`, with the extra size that all have.
pub(super) fn new_inode(geometry: &Geometry, clock: DiskTime, mode: u16) -> Inode {
    let extra = geometry.inode_size > 128;
    Inode {
        mode,
        links: 1,
        atime: clock,
        ctime: clock,
        mtime: clock,
        crtime: clock,
        extra_isize: if extra { EXTRA_SIZE } else { 0 },
        ..Inode::default()
    }
}

impl Files<'_> {
    /// An inode of this mode with the times and extra size that all have.
    pub(super) fn new_inode(&self, mode: u16) -> Inode {
        new_inode(self.geometry, self.clock, mode)
    }

    /// An inode that only root sees, for a file of the file system's own.
    pub(super) fn new_system_file(&self) -> Inode {
        self.new_inode(FileType::Regular.mode_bits() | 0o600)
    }

    /// Whether files map their blocks by extents.
    pub(super) fn uses_extents(&self) -> bool {
        self.geometry.features.has(Incompat::EXTENTS)
    }

    /// Takes `count` blocks from `goal` for the file, maps them, and returns them.
    ///
    /// # Errors
    ///
    /// No room.
    pub(super) fn give_blocks(
        &mut self,
        ino: InodeNo,
        inode: &mut Inode,
        goal: u64,
        count: u64,
    ) -> Result<Vec<Run>, MkfsError> {
        let count = u32::try_from(count).map_err(|_| MkfsError::option("a file is too large"))?;
        let all = 0..count;
        let extents = self.room.give_blocks(ino, inode, goal, slice::from_ref(&all), &[])?;
        Ok(extents.iter().map(|e| Run { start: e.start.0, len: u64::from(e.len) }).collect())
    }

    /// Adds the finished inode.
    pub(super) fn add(&mut self, ino: InodeNo, inode: Inode) {
        self.inodes.push((ino, inode));
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

    /// Records that blocks must read as zeros.
    pub(super) fn zero(&mut self, runs: &[Run]) {
        self.zeroed.extend_from_slice(runs);
    }
}
