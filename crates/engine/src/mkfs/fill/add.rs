//! Files, links and directories: an inode number, an inode, blocks and a name for each.

use std::ops::Range;

use nextent_num::{must_fit, to_u64};
use nextent_ondisk::inode::{BLOCK_AREA, device};
use nextent_ondisk::{BlockNo, Incompat, Inode, InodeNo, RoCompat};

use super::super::error::MkfsError;
use super::super::room::{Room, What};
use super::{Filling, Named, NewAttrs, OpenDir, Pending, Record};
use crate::error::{Error, Result};
use crate::ops::{self, FillRun, LARGE, LINK_MAX};
use crate::{FileType, NewNode};

/// The type of a new file.
#[derive(Clone, Copy, Debug)]
pub enum Contents<'a> {
    /// A regular file of `size` bytes with data in the ranges, which rise; else holes.
    File {
        /// Its length.
        size: u64,
        /// Where there is data.
        data: &'a [Range<u64>],
    },
    /// A symbolic link to this path.
    Symlink(&'a [u8]),
    /// A device, pipe or socket.
    Node(NewNode),
}

/// What was added.
#[derive(Debug)]
pub struct Added {
    /// Its number.
    pub ino: InodeNo,
    /// Where the data of a regular file goes.
    pub runs: Vec<FillRun>,
    /// Extended attributes that were left out, by number, and why.
    pub refused: Vec<(usize, Error)>,
}

/// The result of allocating blocks for a file.
type Mapped<R> = std::result::Result<R, MkfsError>;

fn kind_of(contents: &Contents<'_>) -> FileType {
    match contents {
        Contents::File { .. } | Contents::Node(NewNode::Regular) => FileType::Regular,
        Contents::Symlink(_) => FileType::Symlink,
        Contents::Node(NewNode::CharDevice(_)) => FileType::CharDevice,
        Contents::Node(NewNode::BlockDevice(_)) => FileType::BlockDevice,
        Contents::Node(NewNode::Fifo) => FileType::Fifo,
        Contents::Node(NewNode::Socket) => FileType::Socket,
    }
}

impl Filling<'_> {
    /// Adds a file under the name `at` of an open directory.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::NoInodes`], [`Error::Exists`], [`Error::TooBig`],
    /// [`Error::Invalid`] (for data past the file's end, too), [`Error::NameTooLong`] for a link's
    /// target, [`Error::Io`].
    pub fn add(
        &mut self,
        dir: &mut OpenDir,
        at: usize,
        attrs: &NewAttrs<'_>,
        contents: Contents<'_>,
    ) -> Result<Added> {
        dir.check_free(at)?;
        let kind = kind_of(&contents);
        let block_size = u64::from(self.plan.geometry.block_size);
        match contents {
            Contents::File { size, data } => {
                self.check_size(size)?;
                if data.iter().any(|range| range.end > size) {
                    return Err(Error::Invalid);
                }
            }
            Contents::Symlink(target) => ops::check_target(target, block_size)?,
            Contents::Node(_) => {}
        }
        let made = self.make(attrs, kind, |room, goal, ino, inode| match contents {
            Contents::File { size, data } => map_file(room, goal, (ino, inode), size, data),
            Contents::Symlink(target) => map_target(room, goal, (ino, inode), target),
            Contents::Node(node) => {
                if let NewNode::CharDevice(number) | NewNode::BlockDevice(number) = node {
                    inode.block = device::encode(number.major, number.minor);
                }
                Ok(Vec::new())
            }
        });
        let (ino, record, runs, refused) = made?;
        self.split |= runs.len() > 1;
        if let Contents::File { size, data } = contents {
            let bytes = self.bytes();
            for range in data {
                let write = &mut |at, parts: &[&[u8]]| bytes.write_parts(at, parts);
                ops::zero_edges(block_size, range, size, &runs, write)?;
            }
        }
        dir.set(at, ino, kind);
        if attrs.names > 1 {
            self.named.insert(ino, Named { record, names: attrs.names });
        } else {
            self.put(ino, &record)?;
        }
        Ok(Added { ino, runs, refused })
    }

    /// Gives a file that [`add`](Self::add) made, and that may have more names, the name `at`.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::TooManyLinks`]; [`Error::NotFound`] if it has all its names.
    pub fn link(&mut self, dir: &mut OpenDir, at: usize, ino: InodeNo) -> Result<()> {
        dir.check_free(at)?;
        let named = self.named.get_mut(&ino).ok_or(Error::NotFound)?;
        let inode = &mut named.record.inode;
        if inode.links >= LINK_MAX {
            return Err(Error::TooManyLinks);
        }
        inode.links += 1;
        let kind = inode.file_type().ok_or(Error::Invalid)?;
        dir.set(at, ino, kind);
        if u64::from(inode.links) == named.names
            && let Some(named) = self.named.remove(&ino)
        {
            self.put(ino, &named.record)?;
        }
        Ok(())
    }

    /// Adds an empty directory, to be opened later; one that is there gets the attributes.
    ///
    /// # Errors
    /// As [`add`](Self::add), and [`Error::TooManyLinks`].
    pub fn add_dir(&mut self, dir: &mut OpenDir, at: usize, attrs: &NewAttrs<'_>) -> Result<Added> {
        if let Some(ino) = dir.directory(at) {
            let refused = self.set_attrs(ino, attrs)?;
            return Ok(Added { ino, runs: Vec::new(), refused });
        }
        dir.check_free(at)?;
        if !self.plan.geometry.features.has(RoCompat::DIR_NLINK) && dir.links() >= LINK_MAX.into() {
            return Err(Error::TooManyLinks);
        }
        let made = self.make(attrs, FileType::Directory, |room, goal, _, _| {
            room.take_block(goal, What::Block("a directory"))
        });
        let (ino, record, block, refused) = made?;
        self.plan.count_directory(ino)?;
        dir.set(at, ino, FileType::Directory);
        self.pending.insert(ino, Pending { record, parent: dir.ino, blocks: vec![block] });
        Ok(Added { ino, runs: Vec::new(), refused })
    }

    /// Gives a directory that is not open its attributes; returns those left out.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NoSpace`], [`Error::Io`].
    pub fn set_attrs(&mut self, ino: InodeNo, attrs: &NewAttrs<'_>) -> Result<Vec<(usize, Error)>> {
        let mut pending = self.pending.remove(&ino).ok_or(Error::NotFound)?;
        attrs.set(&mut pending.record.inode);
        let done = self.give_attributes(attrs, &mut pending.record);
        self.pending.insert(ino, pending);
        done
    }

    fn give_attributes(
        &mut self,
        attrs: &NewAttrs<'_>,
        record: &mut Record,
    ) -> Result<Vec<(usize, Error)>> {
        let (tail, laid) = attrs.lay_out(&mut self.plan, &record.inode);
        record.tail = tail;
        if let Some(block) = laid.block {
            let mut room = Room::new(&self.plan.geometry, &mut self.plan.space);
            self.shared.give(&mut room, self.goal, block, &mut record.inode)?;
            self.rendered.extend(room.blocks);
        }
        Ok(laid.refused)
    }

    fn check_size(&mut self, size: u64) -> Result<()> {
        let extents = self.plan.geometry.features.has(Incompat::EXTENTS);
        if size > ops::max_size(&self.plan.geometry, extents) {
            return Err(Error::TooBig);
        }
        if size >= LARGE {
            self.plan.set_feature(RoCompat::LARGE_FILE);
        }
        Ok(())
    }

    /// Makes an inode of `kind`; `map` gives it its blocks. Nothing is taken if it fails.
    #[allow(clippy::type_complexity)] // the parts of an `Added`
    fn make<R>(
        &mut self,
        attrs: &NewAttrs<'_>,
        kind: FileType,
        map: impl FnOnce(&mut Room<'_>, u64, InodeNo, &mut Inode) -> Mapped<R>,
    ) -> Result<(InodeNo, Record, R, Vec<(usize, Error)>)> {
        let highest = self.plan.highest_inode;
        if highest >= self.plan.geometry.inodes_count {
            return Err(Error::NoInodes);
        }
        let ino = InodeNo(highest + 1);
        let mut inode = attrs.inode(&self.plan, ino, kind);
        let (tail, laid) = attrs.lay_out(&mut self.plan, &inode);
        let mut room = Room::new(&self.plan.geometry, &mut self.plan.space);
        let mapped = map(&mut room, self.goal, ino, &mut inode).and_then(|mapped| {
            if let Some(block) = laid.block {
                self.shared.give(&mut room, self.goal, block, &mut inode)?;
            }
            Ok(mapped)
        });
        let mapped = match mapped {
            Ok(mapped) => mapped,
            Err(error) => {
                room.undo();
                return Err(error.into());
            }
        };
        self.goal = room.next(self.goal);
        self.rendered.extend(room.blocks);
        self.plan.highest_inode = ino.0;
        Ok((ino, Record { inode, tail }, mapped, laid.refused))
    }
}

/// Places the ranges `data` of a file of `size` bytes, which is not past what a map reaches.
fn map_file(
    room: &mut Room<'_>,
    goal: u64,
    (ino, inode): (InodeNo, &mut Inode),
    size: u64,
    data: &[Range<u64>],
) -> Mapped<Vec<FillRun>> {
    inode.size = size;
    let bits = room.geometry.block_bits;
    let mut blocks: Vec<Range<u32>> = Vec::with_capacity(data.len());
    for range in data {
        let start = must_fit(range.start >> bits);
        let end = must_fit(range.end.div_ceil(1 << bits));
        match blocks.last_mut() {
            Some(last) if last.end >= start => last.end = last.end.max(end),
            _ => blocks.push(start..end),
        }
    }
    let extents = room.give_blocks(ino, inode, goal, &blocks, &[])?;
    let mut runs: Vec<FillRun> = Vec::with_capacity(extents.len());
    for extent in extents {
        let (offset, device) = (u64::from(extent.block.0) << bits, extent.start.0 << bits);
        let len = u64::from(extent.len) << bits;
        match runs.last_mut() {
            Some(last) if last.offset + last.len == offset && last.device + last.len == device => {
                last.len += len;
            }
            _ => runs.push(FillRun { offset, device, len }),
        }
    }
    Ok(runs)
}

/// Puts the target of a link into the inode, or into a block.
fn map_target(
    room: &mut Room<'_>,
    goal: u64,
    (ino, inode): (InodeNo, &mut Inode),
    target: &[u8],
) -> Mapped<Vec<FillRun>> {
    inode.size = to_u64(target.len());
    if target.len() < BLOCK_AREA {
        inode.block[..target.len()].copy_from_slice(target);
        return Ok(Vec::new());
    }
    let extents = room.give_blocks(ino, inode, goal, std::slice::from_ref(&(0..1)), &[])?;
    let mut bytes = room.new_block();
    bytes[..target.len()].copy_from_slice(target);
    let block: BlockNo = extents[0].start;
    room.blocks.push((block, bytes));
    Ok(Vec::new())
}
