//! Directories: opened with all their names, closed when their blocks are written.

use std::fmt;

use nextent_num::{must_fit, to_u64, to_usize};
use nextent_ondisk::dirent::NewEntry;
use nextent_ondisk::inode::{self, flags};
use nextent_ondisk::numbers::ROOT_INO;
use nextent_ondisk::{BlockNo, InodeNo};

use super::super::room::Room;
use super::{Filling, Pending, Record};
use crate::FileType;
use crate::dir::{DirInfo, Shape};
use crate::error::{Error, Result};
use crate::ops::{LINK_MAX, check_name};

/// The name of the directory that a new root has.
const LOST_FOUND: &[u8] = b"lost+found";
/// Blocks that are written at once.
const BATCH: usize = 64;

/// A directory whose names are known. It must be closed.
pub struct OpenDir {
    pub(super) ino: InodeNo,
    parent: InodeNo,
    record: Record,
    blocks: Vec<BlockNo>,
    shape: Shape,
    names: Vec<Vec<u8>>,
    /// Inode and type of each name; `None` until it is added.
    entries: Vec<Option<(InodeNo, FileType)>>,
    subdirectories: u64,
}

impl fmt::Debug for OpenDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenDir")
            .field("ino", &self.ino)
            .field("names", &self.names.len())
            .finish_non_exhaustive()
    }
}

impl OpenDir {
    /// The names, those asked for first.
    #[must_use]
    pub fn names(&self) -> &[Vec<u8>] {
        &self.names
    }

    /// Whether the name `at` can be added.
    pub(super) fn check_free(&self, at: usize) -> Result<()> {
        match self.entries.get(at) {
            Some(None) => Ok(()),
            Some(Some(_)) => Err(Error::Exists),
            None => Err(Error::NotFound),
        }
    }

    /// The directory that has the name `at`.
    pub(super) fn directory(&self, at: usize) -> Option<InodeNo> {
        let entry = self.entries.get(at).copied().flatten();
        entry.filter(|(_, kind)| *kind == FileType::Directory).map(|(ino, _)| ino)
    }

    /// Sets inode and type of the name `at`.
    pub(super) fn set(&mut self, at: usize, ino: InodeNo, kind: FileType) {
        self.entries[at] = Some((ino, kind));
        self.subdirectories += u64::from(kind == FileType::Directory);
    }

    /// Its names and the `..` in it.
    pub(super) fn links(&self) -> u64 {
        2 + self.subdirectories
    }
}

impl Filling<'_> {
    /// Opens a directory that was added, for all its `names`, which differ. A name that is never
    /// added is not in it.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a directory that was opened before, [`Error::Invalid`] for a name
    /// that is none, [`Error::NoSpace`]; the directory then stays as it was.
    pub fn open_dir(&mut self, ino: InodeNo, mut names: Vec<Vec<u8>>) -> Result<OpenDir> {
        names.iter().try_for_each(|name| check_name(name))?;
        let mut pending = self.pending.remove(&ino).ok_or(Error::NotFound)?;
        if ino == ROOT_INO && !names.iter().any(|name| name == LOST_FOUND) {
            names.push(LOST_FOUND.to_vec());
        }
        let shape = Shape::new(&self.info(ino, &pending), &names, must_fit(pending.blocks.len()));
        if let Err(error) = self.give_dir_blocks(ino, &mut pending, shape.blocks()) {
            self.pending.insert(ino, pending);
            return Err(error);
        }
        let Pending { record, parent, blocks } = pending;
        let entries = vec![None; names.len()];
        let mut dir =
            OpenDir { ino, parent, record, blocks, shape, names, entries, subdirectories: 0 };
        if ino == ROOT_INO
            && let Some(at) = dir.names.iter().position(|name| name == LOST_FOUND)
        {
            dir.set(at, self.plan.geometry.first_inode, FileType::Directory);
        }
        Ok(dir)
    }

    fn info(&self, ino: InodeNo, pending: &Pending) -> DirInfo<'_> {
        let geometry = &self.plan.geometry;
        let seed = inode::csum_seed(geometry, ino, pending.record.inode.generation);
        DirInfo { ino, geometry, seed, index: self.index }
    }

    /// Gives a directory `count` blocks, among them those that it has, and maps them.
    fn give_dir_blocks(&mut self, ino: InodeNo, pending: &mut Pending, count: u32) -> Result<()> {
        let attributes = pending.record.inode.file_acl != BlockNo(0);
        let mut inode = pending.record.inode.clone();
        let mut room = Room::new(&self.plan.geometry, &mut self.plan.space);
        let (range, have) = (0..count, &pending.blocks);
        let range = std::slice::from_ref(&range);
        let extents = match room.give_blocks(ino, &mut inode, self.goal, range, have) {
            Ok(extents) => extents,
            Err(error) => {
                room.undo();
                return Err(error.into());
            }
        };
        let geometry = room.geometry;
        if attributes {
            let sectors = inode.sectors(geometry) + u64::from(geometry.block_size / 512);
            inode.set_sectors(geometry, sectors)?;
        }
        inode.size = u64::from(count) << geometry.block_bits;
        self.goal = room.next(self.goal);
        self.rendered.extend(room.blocks);
        let all = extents.iter().flat_map(|e| e.start.0..e.start.0 + u64::from(e.len));
        pending.blocks = all.map(BlockNo).collect();
        pending.record.inode = inode;
        Ok(())
    }

    /// Writes a directory.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn close_dir(&mut self, dir: OpenDir) -> Result<()> {
        if self.measures {
            return Ok(());
        }
        let geometry = &self.plan.geometry;
        let links = dir.links();
        let OpenDir { ino, parent, mut record, blocks, shape, names, entries, .. } = dir;
        // As Linux counts: beyond the limit, which needs a feature, the count is 1.
        let few = u16::try_from(links).ok().filter(|links| *links <= LINK_MAX);
        record.inode.links = few.unwrap_or(1);
        if shape.is_indexed() {
            record.inode.flags |= flags::INDEX;
        }
        let seed = inode::csum_seed(geometry, ino, record.inode.generation);
        let info = DirInfo { ino, geometry, seed, index: self.index };
        let entry = |at: usize| entries[at].map(|(ino, kind)| NewEntry::new(ino, kind, &names[at]));
        let len = geometry.block_len();
        let mut bytes = Vec::new();
        for (n, block) in (0u32..).zip(&blocks) {
            let at = bytes.len();
            bytes.resize(at + len, 0);
            shape.render(&info, parent, n, entry, &mut bytes[at..]);
            let next = blocks.get(to_usize(n) + 1).map(|next| next.0);
            let whole = bytes.len() / len;
            if next != Some(block.0 + 1) || whole == BATCH {
                let first = BlockNo(block.0 + 1 - to_u64(whole));
                self.rendered.push((first, std::mem::take(&mut bytes)));
            }
        }
        self.put(ino, &record)
    }
}
