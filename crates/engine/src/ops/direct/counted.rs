//! Counted direct I/O, the product's rule: transfers are counted in flight, and only writes that
//! drop rights or fill parts of new blocks lock the file exclusively.
//!
//! An overwrite of blocks that hold data makes no shared store. It counts itself in its slot, finds
//! its blocks in the slot's extent cache, and sets the times once per tick. It notes the flush that
//! will make the data stable only if that has changed.

use std::ops::Range;

use nextent_device::queue::{Piece, Pieces};
use nextent_num::{must_fit, to_u64, to_usize};
use nextent_ondisk::inode::flags;
use nextent_ondisk::{BlockNo, FileBlock};
use nextent_sync::{Arc, injected};

use super::super::{privilege, write::check_still_regular};
use super::{UNIT, Wait};
use crate::Cred;
use crate::alloc::{BlockKind, BlockRequest, Privilege};
use crate::error::{Error, Result};
use crate::inode::rw_lock::{Plan, Transfer};
use crate::inode::{Change, Inode, credits};
use crate::map::{self, ExtentState, MapKind, Mapping};
use crate::ops::Inodes;

/// What a write may do while it holds the file shared.
#[derive(Clone, Copy)]
pub(super) struct WriteTerms {
    pub(super) wait: Wait,
    /// Allocate blocks for holes, and grow the file.
    pub(super) allocates: bool,
}

/// The position of a range relative to the file's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Before it.
    Inside,
    /// Past it; range and size are aligned to blocks.
    Grows,
    /// Past it, not aligned.
    Unaligned,
}

impl Inodes {
    /// Writes `data` to `range`: counted in flight as far as possible, the rest exclusively.
    pub(super) fn write_counted(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        range: Range<u64>,
        data: &[u8],
        wait: Wait,
    ) -> Result<usize> {
        let transfer = Self::begin_transfer(inode, wait)?;
        let done = self.write_shared(cred, inode, &transfer, &range, data, wait);
        drop(transfer);
        let done = match done {
            // The conversion got no block for the map. The exclusive holder can do without one. It
            // writes everything again, because the file may have been truncated since the
            // transfer ended.
            Err(Error::NoSpace) if wait == Wait::Allowed && !injected("completion-unreserved") => 0,
            done => done?,
        };
        if done == data.len() {
            return Ok(done);
        }
        if wait == Wait::Never {
            return if done > 0 { Ok(done) } else { Err(Error::WouldBlock) };
        }
        let rest = &data[done..];
        match self.write_rest_exclusively(cred, inode, range.start + to_u64(done), range.end, rest)
        {
            Ok(more) => Ok(done + more),
            Err(_) if done > 0 => Ok(done),
            Err(error) => Err(error),
        }
    }

    /// Writes what may be written concurrently with other transfers. Returns its length from the
    /// start of the range.
    fn write_shared(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        transfer: &Transfer<'_>,
        range: &Range<u64>,
        data: &[u8],
        wait: Wait,
    ) -> Result<usize> {
        let terms = WriteTerms { wait, allocates: true };
        let plan = self.plan_shared_write(cred, inode, transfer, range, terms)?;
        if plan.bytes > 0 {
            self.write_pieces(inode, &plan, data)?;
            // A call that must not wait has planned no conversion and needs no times.
            if wait == Wait::Allowed {
                self.complete_write(cred, inode, transfer, plan.conversion)?;
            }
        }
        Ok(plan.bytes)
    }

    /// Finds the device ranges for as much of `range` as may be written concurrently with other
    /// transfers. Allocates blocks for holes if the terms allow that.
    pub(super) fn plan_shared_write(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        transfer: &Transfer<'_>,
        range: &Range<u64>,
        WriteTerms { wait, allocates }: WriteTerms,
    ) -> Result<Plan> {
        let mut plan = Plan::default();
        // The transfer is counted by now: the volume may have become read-only before that.
        self.fs.check_writable()?;
        check_still_regular(inode)?;
        if self.fs.needs_exclusive(cred, inode, wait)? {
            return Ok(plan);
        }
        let reach = self.reach(inode, transfer, range, wait)?;
        let never = wait == Wait::Never;
        // A damaged size may exceed what a map can address.
        if range.end / self.fs.block_size() >= u64::from(u32::MAX) {
            return Ok(plan);
        }
        if reach == Reach::Unaligned || !allocates && reach == Reach::Grows {
            return Ok(plan);
        }
        if never && self.times_due(transfer.io()) {
            return Ok(plan);
        }
        let block_size = self.fs.block_size();
        let edge = |at: u64| at.is_multiple_of(block_size);
        let whole = !never && edge(range.start) && edge(range.end);
        let mut at = range.start;
        while at < range.end {
            let within = at % block_size;
            let blocks = self.fs.blocks_of(at, range.end)?;
            let want = blocks.end.0 - blocks.start.0;
            let mut found = self.map_range(inode, transfer, blocks.start, want, (wait, whole))?;
            if !matches!(found, Mapping::Written { .. }) {
                let stop = (at - within + u64::from(found.len()) * block_size).min(range.end);
                if never || within != 0 || !stop.is_multiple_of(block_size) {
                    break;
                }
            }
            if let Mapping::Hole { len, .. } = found
                && allocates
            {
                match self.fill_hole(cred, inode, blocks.start, len.min(want)) {
                    Err(Error::NoSpace) if plan.bytes > 0 => break,
                    filled => found = filled?,
                }
            }
            let begin = (blocks.start, within);
            let Some(bytes) = plan.push(found, begin, range.end - at, block_size) else { break };
            at += bytes;
        }
        if reach == Reach::Grows && plan.bytes > 0 {
            plan.conversion.size = at;
        }
        Ok(plan)
    }

    /// Writes with the file locked exclusively.
    fn write_rest_exclusively(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        offset: u64,
        end: u64,
        data: &[u8],
    ) -> Result<usize> {
        let mut window = inode.rw.write();
        self.write_exclusively(cred, inode, &mut window, offset..end, data)
    }

    /// The position of `range` relative to the file's end.
    fn reach(
        &self,
        inode: &Inode,
        transfer: &Transfer<'_>,
        range: &Range<u64>,
        wait: Wait,
    ) -> Result<Reach> {
        let (io, generation) = (transfer.io(), transfer.generation);
        if io.try_with_extent_cache(|cache| range.end <= cache.size(generation)) == Some(true) {
            return Ok(Reach::Inside);
        }
        let size = inode.with(|state| state.disk.size);
        io.try_with_extent_cache(|cache| cache.note_size(generation, size));
        if range.end <= size {
            return Ok(Reach::Inside);
        }
        // The exclusive writer cuts the range off at the largest size.
        if wait == Wait::Never || range.end > self.max_size(inode) {
            return Ok(Reach::Unaligned);
        }
        let block_size = self.fs.block_size();
        let whole = [range.start, range.end, size].iter().all(|at| at.is_multiple_of(block_size));
        let extents = inode.map.read().kind() == MapKind::Extents;
        Ok(if whole && extents { Reach::Grows } else { Reach::Unaligned })
    }

    /// The mapping of block `at`, from the slot's extent cache or the map. With `whole`, blocks
    /// returned as unwritten may be written by now.
    fn map_range(
        &self,
        inode: &Inode,
        transfer: &Transfer<'_>,
        at: FileBlock,
        want: u32,
        (wait, whole): (Wait, bool),
    ) -> Result<Mapping> {
        let (io, generation) = (transfer.io(), transfer.generation);
        let key = (generation, io.needless_conversions());
        let cached = io.try_with_extent_cache(|cache| match cache.written(generation, at, want) {
            Some((start, len)) => Some(Mapping::Written { start, len }),
            None if whole => {
                cache.unwritten(key, at, want).map(|(start, len)| Mapping::Unwritten { start, len })
            }
            None => None,
        });
        if let Some(mapping) = cached.flatten() {
            return Ok(mapping);
        }
        let cx = self.fs.map_cx(inode, Privilege::User);
        let root = match wait {
            Wait::Allowed => inode.map.read(),
            Wait::Never => inode.map.try_read().ok_or_else(|| Error::WouldBlock)?,
        };
        // Nodes of the tree may have to be read.
        if wait == Wait::Never && root.depth() > 0 {
            return Err(Error::WouldBlock);
        }
        let mut near = Vec::new();
        let found = map::lookup_near(&cx, &root, at, want, &mut near)?;
        drop(root);
        io.try_with_extent_cache(|cache| match found {
            Mapping::Written { .. } => cache.note_written(generation, &near),
            Mapping::Unwritten { .. } if whole => cache.note_unwritten(key, &near),
            _ => {}
        });
        Ok(found)
    }

    /// Maps unwritten blocks to the hole at `at`, unless another thread has done so. Returns the
    /// mapping.
    fn fill_hole(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        at: FileBlock,
        want: u32,
    ) -> Result<Mapping> {
        let fs = &self.fs;
        let privilege = privilege(fs, cred);
        let need = {
            let root = inode.map.read();
            if root.kind() != MapKind::Extents {
                return Ok(Mapping::Hole { len: want, goal: None });
            }
            credits::insert_run_shared(&root, &fs.geometry, want)
        };
        let h = fs.start(need)?;
        let cx = fs.map_cx(inode, privilege);
        let goal_of_file = self.file_goal(inode);
        inode.change_map(&h, Change::Contents, |root| {
            let Mapping::Hole { len, goal } = map::lookup(&cx, root, at, want)? else {
                return map::lookup(&cx, root, at, want);
            };
            let request = BlockRequest {
                kind: BlockKind::Unwritten,
                ..BlockRequest::data(inode.ino, goal.or(goal_of_file), len, privilege)
            };
            let run = fs.blocks.allocate(&h, &request)?;
            let mapped = map::insert(&cx, &h, root, at, run, ExtentState::Unwritten);
            let kept = *mapped.as_ref().unwrap_or(&0);
            if kept < run.len {
                let rest = BlockNo(run.start.0 + u64::from(kept));
                fs.blocks.free(&h, rest, run.len - kept, BlockKind::Data)?;
            }
            Ok(Mapping::Unwritten { start: run.start, len: mapped? })
        })
    }

    /// Fills `buf` from `offset`, counted in flight.
    pub(super) fn read_counted(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        buf: &mut [u8],
        wait: Wait,
    ) -> Result<usize> {
        let transfer = Self::begin_transfer(inode, wait)?;
        let unit = to_usize(UNIT);
        let (len, pieces) = self.plan_read(inode, &transfer, offset, buf, (wait, unit))?;
        for piece in pieces.as_slice() {
            self.device_read(piece.offset, &mut buf[piece.of_buffer()])?;
        }
        Ok(len)
    }

    /// Plans a read: returns the number of bytes that the file has for `buf` from `offset`, and the
    /// device ranges of those that are not zeros. It zeroes the rest of `buf` itself. Reads whole
    /// units if `buf` has space for them.
    pub(super) fn plan_read(
        &self,
        inode: &Arc<Inode>,
        transfer: &Transfer<'_>,
        offset: u64,
        buf: &mut [u8],
        (wait, unit): (Wait, usize),
    ) -> Result<(usize, Pieces)> {
        self.check_regular(inode)?;
        if inode.snapshot().has_any(flags::INLINE_DATA) {
            return Err(Error::unsupported("direct reading of a file with inline data"));
        }
        let end = offset.saturating_add(to_u64(buf.len()));
        let (io, generation) = (transfer.io(), transfer.generation);
        let mut size = io.try_with_extent_cache(|cache| cache.size(generation)).unwrap_or(0);
        if end > size {
            size = inode.with(|state| state.disk.size);
            io.try_with_extent_cache(|cache| cache.note_size(generation, size));
        }
        let end = end.min(size);
        let len = to_usize(end.saturating_sub(offset));
        let block_size = self.fs.block_size();
        let mut pieces = Pieces::default();
        let mut done = 0;
        while done < len {
            let at = offset + to_u64(done);
            let within = at % block_size;
            // A damaged size may exceed what a map can address.
            let Ok(block) = u32::try_from(at / block_size) else {
                buf[done..len].fill(0);
                break;
            };
            let want = must_fit((within + end - at).div_ceil(block_size).min(u64::from(u32::MAX)));
            let block = FileBlock(block);
            let look = || self.map_range(inode, transfer, block, want, (wait, false));
            let found = self.lookup_completed(inode, wait, look)?;
            let bytes = to_usize((u64::from(found.len()) * block_size - within).min(end - at));
            match found {
                Mapping::Written { start, .. } => {
                    let len = bytes.next_multiple_of(unit).min(buf.len() - done);
                    let offset = start.0 * block_size + within;
                    pieces.push(Piece { offset, start: done, len });
                }
                _ => buf[done..done + bytes].fill(0),
            }
            done += bytes;
        }
        Ok((len, pieces))
    }
}
