//! The rule of `nextent`: transfers hold references, and only what changes privileges or parts of
//! fresh blocks has the file for itself.
//!
//! An overwrite of blocks that hold data stores to nothing that another core stores to: the
//! reference is counted at the slot, the place is what the slot has seen, times are set once in a
//! tick, and the flush that will cover the data is noted only when it is another than before.

use std::ops::Range;

use nextent_device::queue::{Piece, Pieces};
use nextent_num::{must_fit, to_u64, to_usize};
use nextent_ondisk::inode::flags;
use nextent_ondisk::{BlockNo, FileBlock};
use nextent_sync::{Arc, injected};

use super::super::{privilege, write::still_there};
use super::{UNIT, Wait};
use crate::Cred;
use crate::alloc::{BlockRequest, Kind, Privilege};
use crate::error::{Error, Result};
use crate::inode::long::{Plan, Transfer};
use crate::inode::{Change, Inode, credits};
use crate::map::{self, MapKind, Mapping, State};
use crate::ops::Inodes;

/// What a writer beside others may do.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) wait: Wait,
    /// Allocate into holes, and let the file grow.
    pub(super) fills: bool,
}

/// How a range lies to a file's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Before it.
    Inside,
    /// Past it, in whole blocks.
    Grows,
    /// Past it otherwise.
    Ragged,
}

impl Inodes {
    /// Writes `data` to `range` with a reference as far as that is allowed, and the rest
    /// exclusively.
    pub(super) fn write_by_reference(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        range: Range<u64>,
        data: &[u8],
        wait: Wait,
    ) -> Result<usize> {
        let transfer = match wait {
            Wait::Allowed => inode.rw.transfer(),
            Wait::Never => inode.rw.try_transfer().ok_or_else(|| Error::WouldBlock)?,
        };
        let done = self.write_beside_others(cred, inode, &transfer, &range, data, wait);
        drop(transfer);
        let done = match done {
            // A conversion that finds no block for the map has one that it can do without when
            // nobody else writes to the extent. All is written again: it may have been cut off.
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
        match self.write_alone(cred, inode, range.start + to_u64(done), range.end, rest) {
            Ok(more) => Ok(done + more),
            Err(_) if done > 0 => Ok(done),
            Err(error) => Err(error),
        }
    }

    /// Writes what may be written beside other transfers; how much that was, from the start on.
    fn write_beside_others(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        transfer: &Transfer<'_>,
        range: &Range<u64>,
        data: &[u8],
        wait: Wait,
    ) -> Result<usize> {
        let may = Terms { wait, fills: true };
        let plan = self.plan_beside_others(cred, inode, transfer, range, may)?;
        if plan.bytes > 0 {
            self.write_pieces(inode, &plan, data)?;
            // What does not wait has nothing to convert, and its times were set a moment ago.
            if wait == Wait::Allowed {
                self.finish(cred, inode, transfer, plan.finished)?;
            }
        }
        Ok(plan.bytes)
    }

    /// Finds out where the bytes of `range` go as far as they may be written beside other
    /// transfers, and allocates what is missing if that is among the terms.
    pub(super) fn plan_beside_others(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        transfer: &Transfer<'_>,
        range: &Range<u64>,
        Terms { wait, fills }: Terms,
    ) -> Result<Plan> {
        let mut plan = Plan::default();
        still_there(inode)?;
        if self.fs.takes_rights(cred, inode, wait)? {
            return Ok(plan);
        }
        let reach = self.reach(inode, transfer, range, wait)?;
        let never = wait == Wait::Never;
        // A damaged size may be more than a map reaches.
        if range.end / self.fs.block_size() >= u64::from(u32::MAX) {
            return Ok(plan);
        }
        if reach == Reach::Ragged || !fills && reach == Reach::Grows {
            return Ok(plan);
        }
        if never && self.times_due(transfer.refs()) {
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
            let mut found = self.place_of(inode, transfer, blocks.start, want, (wait, whole))?;
            if !matches!(found, Mapping::Written { .. }) {
                let stop = (at - within + u64::from(found.len()) * block_size).min(range.end);
                if never || within != 0 || !stop.is_multiple_of(block_size) {
                    break;
                }
            }
            if let Mapping::Hole { len, .. } = found
                && fills
            {
                match self.fill_hole(cred, inode, blocks.start, len.min(want)) {
                    Err(Error::NoSpace) if plan.bytes > 0 => break,
                    filled => found = filled?,
                }
            }
            let (start, len) = match found {
                Mapping::Written { start, len } => (start, len),
                Mapping::Unwritten { start, len } => {
                    plan.finished.blocks.push(blocks.start..FileBlock(blocks.start.0 + len));
                    (start, len)
                }
                Mapping::Hole { .. } => break,
            };
            let bytes = (u64::from(len) * block_size - within).min(range.end - at);
            plan.push(start.0 * block_size + within, to_usize(bytes));
            at += bytes;
        }
        if reach == Reach::Grows && plan.bytes > 0 {
            plan.finished.size = at;
        }
        Ok(plan)
    }

    /// Writes with the file to itself.
    fn write_alone(
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

    /// How `range` lies to the file's end.
    fn reach(
        &self,
        inode: &Inode,
        transfer: &Transfer<'_>,
        range: &Range<u64>,
        wait: Wait,
    ) -> Result<Reach> {
        let (refs, edition) = (transfer.refs(), transfer.edition);
        if refs.try_with_seen(|seen| range.end <= seen.size(edition)) == Some(true) {
            return Ok(Reach::Inside);
        }
        let size = inode.with(|state| state.disk.size);
        refs.try_with_seen(|seen| seen.note_size(edition, size));
        if range.end <= size {
            return Ok(Reach::Inside);
        }
        // The exclusive writer cuts the range at the largest size.
        if wait == Wait::Never || range.end > self.max_size(inode) {
            return Ok(Reach::Ragged);
        }
        let block_size = self.fs.block_size();
        let whole = [range.start, range.end, size].iter().all(|at| at.is_multiple_of(block_size));
        let extents = inode.map.read().kind() == MapKind::Extents;
        Ok(if whole && extents { Reach::Grows } else { Reach::Ragged })
    }

    /// What block `at` is mapped to: as the slot has seen it, or as the map says. With `whole` what
    /// is called unwritten may be written by now.
    fn place_of(
        &self,
        inode: &Inode,
        transfer: &Transfer<'_>,
        at: FileBlock,
        want: u32,
        (wait, whole): (Wait, bool),
    ) -> Result<Mapping> {
        let (refs, edition) = (transfer.refs(), transfer.edition);
        let fresh = (edition, refs.idle());
        let seen = refs.try_with_seen(|seen| match seen.written(edition, at, want) {
            Some((start, len)) => Some(Mapping::Written { start, len }),
            None if whole => {
                seen.fresh(fresh, at, want).map(|(start, len)| Mapping::Unwritten { start, len })
            }
            None => None,
        });
        if let Some(mapping) = seen.flatten() {
            return Ok(mapping);
        }
        let cx = self.fs.map_cx(inode, Privilege::User);
        let root = match wait {
            Wait::Allowed => inode.map.read(),
            Wait::Never => inode.map.try_read().ok_or_else(|| Error::WouldBlock)?,
        };
        // Nodes may have to be read.
        if wait == Wait::Never && root.depth() > 0 {
            return Err(Error::WouldBlock);
        }
        let mut near = Vec::new();
        let found = map::lookup_near(&cx, &root, at, want, &mut near)?;
        drop(root);
        refs.try_with_seen(|seen| match found {
            Mapping::Written { .. } => seen.note_written(edition, &near),
            Mapping::Unwritten { .. } if whole => seen.note_fresh(fresh, &near),
            _ => {}
        });
        Ok(found)
    }

    /// Maps unwritten blocks to the hole at `at`, unless somebody else has done so; what is
    /// there then.
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
            credits::place_in_shared(&root, &fs.geometry, want)
        };
        let h = fs.start(need)?;
        let cx = fs.map_cx(inode, privilege);
        let goal_of_file = self.file_goal(inode);
        inode.change_map(&h, Change::Contents, |root| {
            let Mapping::Hole { len, goal } = map::lookup(&cx, root, at, want)? else {
                return map::lookup(&cx, root, at, want);
            };
            let request = BlockRequest {
                kind: Kind::Unwritten,
                ..BlockRequest::data(inode.ino, goal.or(goal_of_file), len, privilege)
            };
            let run = fs.blocks.allocate(&h, &request)?;
            let mapped = map::insert(&cx, &h, root, at, run, State::Unwritten);
            let kept = *mapped.as_ref().unwrap_or(&0);
            if kept < run.len {
                let rest = BlockNo(run.start.0 + u64::from(kept));
                fs.blocks.free(&h, rest, run.len - kept, Kind::Data)?;
            }
            Ok(Mapping::Unwritten { start: run.start, len: mapped? })
        })
    }

    /// Fills `buf` from `offset` with a reference.
    pub(super) fn read_by_reference(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        buf: &mut [u8],
        wait: Wait,
    ) -> Result<usize> {
        let transfer = match wait {
            Wait::Allowed => inode.rw.transfer(),
            Wait::Never => inode.rw.try_transfer().ok_or_else(|| Error::WouldBlock)?,
        };
        let unit = to_usize(UNIT);
        let (len, pieces) = self.plan_reading(inode, &transfer, offset, buf, (wait, unit))?;
        for piece in pieces.as_slice() {
            self.device_read(piece.offset, &mut buf[piece.of_buffer()])?;
        }
        Ok(len)
    }

    /// How many bytes there are for `buf` from `offset`, and where those lie that are not zeros;
    /// the zeros are filled in. Whole units are read if `buf` has them.
    pub(super) fn plan_reading(
        &self,
        inode: &Arc<Inode>,
        transfer: &Transfer<'_>,
        offset: u64,
        buf: &mut [u8],
        (wait, unit): (Wait, usize),
    ) -> Result<(usize, Pieces)> {
        self.check_regular(inode)?;
        if inode.traits().has_any(flags::INLINE_DATA) {
            return Err(Error::unsupported("direct reading of a file with inline data"));
        }
        let end = offset.saturating_add(to_u64(buf.len()));
        let (refs, edition) = (transfer.refs(), transfer.edition);
        let mut size = refs.try_with_seen(|seen| seen.size(edition)).unwrap_or(0);
        if end > size {
            size = inode.with(|state| state.disk.size);
            refs.try_with_seen(|seen| seen.note_size(edition, size));
        }
        let end = end.min(size);
        let len = to_usize(end.saturating_sub(offset));
        let block_size = self.fs.block_size();
        let mut pieces = Pieces::default();
        let mut done = 0;
        while done < len {
            let at = offset + to_u64(done);
            let within = at % block_size;
            // A damaged size may be more than a map reaches.
            let Ok(block) = u32::try_from(at / block_size) else {
                buf[done..len].fill(0);
                break;
            };
            let want = must_fit((within + end - at).div_ceil(block_size).min(u64::from(u32::MAX)));
            let block = FileBlock(block);
            let look = || self.place_of(inode, transfer, block, want, (wait, false));
            let found = self.look_settled(inode, wait, look)?;
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
