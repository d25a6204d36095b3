//! Filling a volume that was just made: block allocation first, data later and from any thread.
//!
//! One thread calls [`Inodes::fill_file`] and all other calls that create inodes. What they create,
//! and where, depends only on the order of the calls. New blocks are mapped as written at once, so
//! until [`Inodes::fill_data`] has written all of them they contain what the device held before.
//! This is for images that are discarded unless they are completed.

use std::ops::Range;

use nextent_num::{to_u64, to_usize};
use nextent_ondisk::inode::flags;
use nextent_ondisk::{FileBlock, InodeNo};
use nextent_sync::Arc;

use super::{file_block, privilege};
use crate::alloc::{BlockRequest, BlockRun, Window};
use crate::error::{Error, Result};
use crate::inode::{Inode, credits};
use crate::map::{self, ExtentState};
use crate::ops::Inodes;
use crate::{Cred, NewNode, SetAttr};

static ZEROS: [u8; 65536] = [0; 65536];

/// A run of whole blocks: where a part of a file is on the device. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillRun {
    /// Offset in the file.
    pub offset: u64,
    /// Offset on the device.
    pub device: u64,
    /// Length.
    pub len: u64,
}

impl Inodes {
    /// Creates the regular file `name` with the attributes `set` (including the size) and allocates
    /// blocks for the ranges `data`, which rise. Zeroes the parts of those blocks that no range
    /// covers, except past the end of the file: the thread that writes the last byte does that.
    ///
    /// # Errors
    /// As [`mknod`](Self::mknod) and [`setattr`](Self::setattr); [`Error::TooBig`],
    /// [`Error::NoSpace`].
    pub fn fill_file(
        &self,
        cred: &Cred,
        (parent, name): (InodeNo, &[u8]),
        set: &SetAttr,
        data: &[Range<u64>],
    ) -> Result<(InodeNo, Vec<FillRun>)> {
        let mode = set.mode.unwrap_or(0o600);
        let ino = self.mknod(cred, parent, name, NewNode::Regular, mode)?.ino;
        let inode = self.regular(ino)?;
        let size = set.size.unwrap_or(0);
        let mut runs = Vec::new();
        if !data.is_empty() {
            self.allocate_ranges(cred, &inode, size, data, &mut runs)?;
        }
        let kept = inode.with(|state| state.disk.size);
        let set = SetAttr { size: set.size.filter(|size| *size != kept), ..set.clone() };
        self.setattr(cred, ino, &set)?;
        Ok((ino, runs))
    }

    fn allocate_ranges(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        size: u64,
        data: &[Range<u64>],
        runs: &mut Vec<FillRun>,
    ) -> Result<()> {
        let block_size = self.fs.block_size();
        let mut window = inode.rw.write();
        if size > self.max_size(inode) || inode.with(|state| state.has_flag(flags::INLINE_DATA)) {
            return Err(Error::TooBig);
        }
        // First, so that no block is past the end when space runs out.
        let h = self.fs.start(credits::INODE)?;
        self.note_size(&h, inode, size);
        drop(h);
        let mut reached = 0;
        for range in data {
            let start = (range.start / block_size).max(reached);
            let end = range.end.div_ceil(block_size);
            if range.end > size || range.start < reached.saturating_sub(1) * block_size {
                return Err(Error::Invalid);
            }
            if start < end {
                let blocks = file_block(start)?..file_block(end)?;
                self.allocate_run(cred, inode, &mut window, blocks, runs)?;
                reached = end;
            }
            zero_edges(block_size, range, size, runs, &mut |at, parts| {
                self.device_write(at, parts)
            })?;
        }
        Ok(())
    }

    /// Maps `blocks`, a hole, to new blocks.
    fn allocate_run(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        window: &mut Window,
        blocks: Range<FileBlock>,
        runs: &mut Vec<FillRun>,
    ) -> Result<()> {
        let (fs, block_size) = (&self.fs, self.fs.block_size());
        let privilege = privilege(fs, cred);
        let mut at = blocks.start;
        while at < blocks.end {
            let (want, need) = {
                let root = inode.map.read();
                let want = (blocks.end.0 - at.0).min(map::max_insert_len(&root, &fs.geometry));
                (want, credits::insert_run(&root, &fs.geometry, want))
            };
            let h = fs.start(need)?;
            let goal = match runs.last() {
                Some(run) => Some(nextent_ondisk::BlockNo((run.device + run.len) / block_size)),
                None => self.file_goal(inode),
            };
            let request = BlockRequest::data(inode.ino, goal, want, privilege);
            let run: BlockRun = self.allocate(&h, inode, window, request)?;
            self.insert(&h, inode, at, run, ExtentState::Written, privilege)?;
            let (offset, device) = (u64::from(at.0) * block_size, run.start.0 * block_size);
            let len = u64::from(run.len) * block_size;
            match runs.last_mut() {
                Some(last)
                    if last.device + last.len == device && last.offset + last.len == offset =>
                {
                    last.len += len;
                }
                _ => runs.push(FillRun { offset, device, len }),
            }
            at = FileBlock(at.0 + run.len);
        }
        Ok(())
    }

    /// Writes `bytes` at `offset` of a file of `size` bytes that was allocated at `runs`. With the
    /// last byte of the file it also zeroes the rest of the block.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Invalid`] for bytes outside of `runs`.
    pub fn fill_data(&self, runs: &[FillRun], size: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let write = &mut |at, parts: &[&[u8]]| self.device_write(at, parts);
        write_to_runs(self.fs.block_size(), (runs, size), offset, bytes, write)
    }
}

/// Writes the parts one after another to an offset of the device, in bytes.
pub(crate) type WriteAt<'w> = dyn FnMut(u64, &[&[u8]]) -> Result<()> + 'w;

/// Writes `bytes` at `offset` of a file that is at `runs`: see [`Inodes::fill_data`].
pub(crate) fn write_to_runs(
    block_size: u64,
    (runs, size): (&[FillRun], u64),
    offset: u64,
    bytes: &[u8],
    write: &mut WriteAt<'_>,
) -> Result<()> {
    let mut at = offset;
    let mut rest = bytes;
    while !rest.is_empty() {
        let next = runs.partition_point(|run| run.offset <= at);
        let run = next.checked_sub(1).map(|n| runs[n]).ok_or_else(|| Error::Invalid)?;
        let within = at - run.offset;
        if within >= run.len {
            return Err(Error::Invalid);
        }
        let len = (run.len - within).min(to_u64(rest.len()));
        let (part, after) = rest.split_at(to_usize(len));
        let end = at + len;
        let pad = if end == size { end.next_multiple_of(block_size) - end } else { 0 };
        write(run.device + within, &[part, &ZEROS[..to_usize(pad)]])?;
        rest = after;
        at = end;
    }
    Ok(())
}

/// Zeroes the blocks that the ends of `range` cover in part, except for the file's last.
pub(crate) fn zero_edges(
    block_size: u64,
    range: &Range<u64>,
    size: u64,
    runs: &[FillRun],
    write: &mut WriteAt<'_>,
) -> Result<()> {
    let mut zero = |at: u64| {
        let at = at / block_size * block_size;
        let run = runs.iter().rev().find(|run| run.offset <= at);
        let run = run.ok_or_else(|| Error::Invalid)?;
        write(run.device + (at - run.offset), &[&ZEROS[..to_usize(block_size)]])
    };
    if !range.start.is_multiple_of(block_size) {
        zero(range.start)?;
    }
    if !range.end.is_multiple_of(block_size) && range.end != size {
        zero(range.end)?;
    }
    Ok(())
}
