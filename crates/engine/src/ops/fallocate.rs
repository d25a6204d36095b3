//! `fallocate(2)`: allocate, punch, zero, collapse, insert.

use std::ops::Range;

use nextent_ondisk::inode::flags;
use nextent_ondisk::{FileBlock, InodeNo};
use nextent_sync::Arc;

use super::{file_block, max_size, privilege};
use crate::alloc::{BlockKind, BlockRequest, Window};
use crate::error::{Error, Result};
use crate::inode::{Change, Inode, InodeState, attributes, credits, grow, truncate};
use crate::map::{self, ExtentState, MapKind, Mapping, Progress};
use crate::ops::Inodes;
use crate::{Cred, FallocateMode, FileType};

/// A size that every volume supports: the lowest limit is that of 2^32 sectors.
const WITHIN_LIMITS: u64 = 1 << 40;
/// Blocks that one handle allocates at most.
const MOST: u32 = 32767;

impl Inodes {
    /// Changes how `len` bytes from `offset` are allocated, see [`FallocateMode`].
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty range, or a range of partial blocks where whole blocks are
    /// needed. [`Error::NotSupported`] for files with indirect maps where extents are needed.
    /// [`Error::NoSpace`] (what was allocated until then stays), [`Error::TooBig`].
    pub fn fallocate(
        &self,
        cred: &Cred,
        ino: InodeNo,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let inode = self.report(self.fs.any_inode(ino))?;
        self.fallocate_in(cred, &inode, mode, offset, len)
    }

    /// [`fallocate`](Self::fallocate) of an inode that the caller has.
    pub(crate) fn fallocate_in(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        self.fs.check_writable()?;
        if len == 0 {
            return Err(Error::Invalid);
        }
        let end = offset.checked_add(len).ok_or_else(|| Error::TooBig)?;
        if self.extend(cred, inode, mode, offset..end)? {
            return Ok(());
        }
        self.attempt(|| {
            let mut guard = inode.rw.write();
            let window = &mut *guard;
            self.check_fallocate(inode, mode, end)?;
            self.begin_change(inode)?;
            match mode {
                FallocateMode::Allocate => self.preallocate(cred, inode, window, offset..end, true),
                FallocateMode::KeepSize => {
                    self.preallocate(cred, inode, window, offset..end, false)
                }
                FallocateMode::PunchHole => self.punch(cred, inode, offset..end),
                FallocateMode::ZeroRange { keep_size } => {
                    self.zero_range(cred, inode, window, offset..end, !keep_size)
                }
                FallocateMode::CollapseRange => self.collapse(cred, inode, offset, len),
                FallocateMode::InsertRange => self.insert_range(cred, inode, offset, len),
            }
        })?;
        self.sync_if_flagged(inode)
    }

    fn check_fallocate(&self, inode: &Inode, mode: FallocateMode, end: u64) -> Result<()> {
        let (bits, free) = inode.with(|state| (state.disk.flags, state.free));
        if free {
            return Err(Error::NotFound);
        }
        // Under the lock and after the check: the number may have become a directory's meanwhile.
        self.check_regular(inode)?;
        if bits & flags::FIXED_CONTENTS != 0 {
            return Err(Error::Perm);
        }
        let grows = matches!(mode, FallocateMode::Allocate | FallocateMode::KeepSize);
        if bits & flags::APPEND != 0 && !grows {
            return Err(Error::Perm);
        }
        if bits & flags::INLINE_DATA != 0 {
            return Err(Error::NotSupported);
        }
        // The volume's limit holds for each mode: blocks past it have no number.
        if end > max_size(&self.fs.geometry, true) {
            return Err(Error::TooBig);
        }
        let punch = mode == FallocateMode::PunchHole;
        if inode.map.read().kind() == MapKind::Indirect && !punch {
            return Err(Error::NotSupported);
        }
        Ok(())
    }

    /// Allocates `range`, which is not empty, in one short step, if it begins where the file's
    /// blocks end and the file has no special property. Takes `[inode.rw]`.
    #[inline]
    fn extend(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        mode: FallocateMode,
        range: Range<u64>,
    ) -> Result<bool> {
        let bits = self.fs.geometry.block_bits;
        let grows = matches!(mode, FallocateMode::Allocate | FallocateMode::KeepSize);
        if !grows || range.end > WITHIN_LIMITS {
            return Ok(false);
        }
        let at = file_block(range.start >> bits)?;
        let stop = file_block(((range.end - 1) >> bits) + 1)?;
        let mut window = inode.rw.write();
        // Under the lock: the number may have become a directory's meanwhile.
        let regular = inode.file_type() == Some(FileType::Regular);
        if window.is_empty() || !regular || attributes::has_capability(&self.fs, inode) {
            return Ok(false);
        }
        let step = grow::GrowStep {
            at,
            len: stop.0 - at.0,
            state: ExtentState::Unwritten,
            size: if mode == FallocateMode::Allocate { range.end } else { 0 },
            privilege: privilege(&self.fs, cred),
        };
        let note = |state: &mut InodeState| self.note_write_in(state, cred);
        Ok(self.fs.store.with_handle(grow::CREDITS, |h| {
            grow::extend_tail(&self.fs, h, inode, &mut window, &step, note)
        })?)
    }

    /// Maps the holes of `range` to unwritten blocks.
    fn preallocate(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        window: &mut Window,
        range: Range<u64>,
        grow: bool,
    ) -> Result<()> {
        let fs = &self.fs;
        let block_size = fs.block_size();
        let privilege = privilege(fs, cred);
        let size = inode.with(|state| state.disk.size);
        if grow && range.end > size {
            self.zero_tail(inode, size)?;
        }
        let mut at = file_block(range.start / block_size)?.0;
        let stop = file_block(range.end.div_ceil(block_size))?.0;
        while at < stop {
            let want = (stop - at).min(MOST);
            let need = credits::insert_run(&inode.map.read(), &fs.geometry, want);
            fs.evict_groups()?;
            let h = fs.start(need)?;
            let cx = fs.map_cx(inode, privilege);
            let found = map::lookup(&cx, &inode.map.read(), FileBlock(at), want)?;
            let mut len = found.len();
            if let Mapping::Hole { len: hole, goal } = found {
                let goal =
                    goal.or_else(|| window.take_rewrite_goal()).or_else(|| self.file_goal(inode));
                let request = BlockRequest {
                    kind: BlockKind::Unwritten,
                    ..BlockRequest::data(inode.ino, goal, hole.min(want), privilege)
                };
                let run = self.allocate(&h, inode, window, request)?;
                let state = ExtentState::Unwritten;
                len = self.insert(&h, inode, FileBlock(at), run, state, privilege)?;
            }
            at += len;
            let reached = (u64::from(at) * block_size).min(range.end);
            if grow && reached > inode.with(|state| state.disk.size) {
                self.note_size(&h, inode, reached);
            }
            self.note_write(&h, inode, cred);
        }
        Ok(())
    }

    /// Unmaps the whole blocks of `range` and zeroes the partial ones.
    fn punch(&self, cred: &Cred, inode: &Arc<Inode>, range: Range<u64>) -> Result<()> {
        let blocks = self.zero_edges(inode, &range)?;
        let h = self.fs.start(credits::PUNCH)?;
        self.note_write(&h, inode, cred);
        if !blocks.is_empty() {
            truncate::remove_range(&self.fs, &h, inode, blocks)?;
        }
        Ok(())
    }

    /// Zeroes the partial blocks of `range`; returns the whole ones.
    fn zero_edges(&self, inode: &Inode, range: &Range<u64>) -> Result<Range<FileBlock>> {
        let block_size = self.fs.block_size();
        let start = range.start.div_ceil(block_size);
        let end = range.end / block_size;
        if start > end {
            self.zero_within(inode, range.start, range.end)?;
            return Ok(FileBlock(0)..FileBlock(0));
        }
        if !range.start.is_multiple_of(block_size) {
            self.zero_within(inode, range.start, start * block_size)?;
        }
        if !range.end.is_multiple_of(block_size) {
            self.zero_within(inode, end * block_size, range.end)?;
        }
        Ok(file_block(start)?..file_block(end)?)
    }

    /// Makes `range` allocated and zero.
    fn zero_range(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        window: &mut Window,
        range: Range<u64>,
        grow: bool,
    ) -> Result<()> {
        let blocks = self.zero_edges(inode, &range)?;
        let mut end = blocks.end;
        while blocks.start < end {
            let need = map::change_credits(&inode.map.read()) + credits::INODE;
            let h = self.fs.start(need)?;
            let cx = self.fs.map_cx(inode, privilege(&self.fs, cred));
            let progress = inode.change_map(&h, Change::Contents, |root| {
                map::mark_unwritten(&cx, &h, root, blocks.start..end)
            })?;
            match progress {
                Progress::Done => break,
                Progress::Stopped(at) => end = at.min(end),
            }
        }
        self.preallocate(cred, inode, window, range, grow)
    }

    fn whole_blocks(&self, offset: u64, len: u64) -> Result<(FileBlock, u32)> {
        let block_size = self.fs.block_size();
        if !offset.is_multiple_of(block_size) || !len.is_multiple_of(block_size) {
            return Err(Error::Invalid);
        }
        Ok((file_block(offset / block_size)?, file_block(len / block_size)?.0))
    }

    /// Removes `len` bytes at `offset` from the file.
    fn collapse(&self, cred: &Cred, inode: &Arc<Inode>, offset: u64, len: u64) -> Result<()> {
        let fs = &self.fs;
        let (start, count) = self.whole_blocks(offset, len)?;
        let size = inode.with(|state| state.disk.size);
        if offset + len >= size {
            return Err(Error::Invalid);
        }
        let h = fs.start(credits::PUNCH)?;
        let mut from = FileBlock(start.0 + count);
        truncate::remove_range(fs, &h, inode, start..from)?;
        loop {
            let need = credits::shift(&inode.map.read());
            if !h.ensure(need)? {
                fs.restart(&h, need)?;
            }
            let cx = fs.map_cx(inode, privilege(fs, cred));
            let progress = inode.change_map(&h, Change::Layout, |root| {
                map::shift_left(&cx, &h, root, from, count)
            })?;
            match progress {
                Progress::Done => break,
                Progress::Stopped(at) => from = at,
            }
            fs.restart(&h, need)?;
        }
        self.note_size(&h, inode, size - len);
        self.note_write(&h, inode, cred);
        Ok(())
    }

    /// Inserts a hole of `len` bytes at `offset`.
    fn insert_range(&self, cred: &Cred, inode: &Arc<Inode>, offset: u64, len: u64) -> Result<()> {
        let fs = &self.fs;
        let (start, count) = self.whole_blocks(offset, len)?;
        let size = inode.with(|state| state.disk.size);
        if offset >= size {
            return Err(Error::Invalid);
        }
        if size.checked_add(len).is_none_or(|end| end > self.max_size(inode)) {
            return Err(Error::TooBig);
        }
        let need = credits::shift(&inode.map.read());
        let h = fs.start(need)?;
        // The size first: a crash in between must not leave blocks past the end.
        self.note_size(&h, inode, size + len);
        self.note_write(&h, inode, cred);
        let mut end = map::END_OF_BLOCKS;
        loop {
            let need = credits::shift(&inode.map.read());
            if !h.ensure(need)? {
                fs.restart(&h, need)?;
            }
            let cx = fs.map_cx(inode, privilege(fs, cred));
            let progress = inode.change_map(&h, Change::Layout, |root| {
                map::shift_right(&cx, &h, root, start..end, count)
            });
            match progress {
                Ok(Progress::Done) => return Ok(()),
                Ok(Progress::Stopped(at)) => end = at,
                Err(error) => {
                    if end == map::END_OF_BLOCKS {
                        self.note_size(&h, inode, size);
                    }
                    return Err(error);
                }
            }
            fs.restart(&h, need)?;
        }
    }
}
