//! Buffered writes: straight to the device, before the commit that makes new blocks visible.
//!
//! | blocks written | `inode.rw` | handle |
//! |---|---|---|
//! | written, inside the file | shared, or counted in flight | none (times: once in 4 ms) |
//! | whole unwritten blocks, inside the file | shared, or counted in flight | after the data: converts |
//! | else: holes, growth, parts of unwritten blocks, set-id files | exclusive | around the data |
//!
//! A file that several cores overwrite has an in-flight I/O count (`inode::rw_lock`). Writes to it
//! take the path of direct writes, without a store that another core makes too. For a file that one
//! thread at a time uses, the lock is cheaper.
//!
//! New blocks are mapped as written in the same handle in which their data went to the device. A
//! commit flushes the device before its commit block, so no crash exposes what the blocks held
//! before. The parts of new blocks that the caller does not write are zeroed with the data.

use std::io::IoSlice;
use std::ops::Range;

use nextent_num::{to_u64, to_usize};
use nextent_ondisk::inode::flags;
use nextent_ondisk::{BlockNo, Corrupt, FileBlock, InodeNo, Structure};
use nextent_store::Handle;
use nextent_sync::Arc;
use nextent_sync::atomic::Ordering;

use super::{RETRIES, file_block, permission, privilege};
use crate::Cred;
use crate::FileType;
use crate::alloc::{BlockKind, BlockRequest, BlockRun, InodeKind, Privilege, Window};
use crate::error::{Error, Result};
use crate::inode::{Change, Fs, Inode, attributes, credits};
use crate::map::{self, ExtentState, MapKind, Mapping, Progress};
use crate::ops::Inodes;

/// Bytes that one handle writes at most: bounds how long a commit waits for it.
const CHUNK: u64 = 8 << 20;
/// Overwrites within this time share one update of the times.
pub(super) const TICK_NANOS: i128 = 4_000_000;
static ZEROS: [u8; 65536] = [0; 65536];

/// Whether the inode is still a regular file in use, after a wait for its lock: the number may have
/// been freed and reused.
pub(super) fn check_still_regular(inode: &Inode) -> Result<()> {
    let gone = inode.snapshot().is_free() || inode.file_type() != Some(FileType::Regular);
    if gone { Err(Error::NotFound) } else { Ok(()) }
}

impl Inodes {
    /// Writes `data` at `offset`; a gap after the old end becomes a hole. Returns how much was
    /// written: all, or less if space ran out or the largest size was reached.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when nothing could be written, [`Error::TooBig`], [`Error::ReadOnly`],
    /// [`Error::Perm`] for an immutable file and, unless it is at the end, an append-only one.
    pub fn write(&self, cred: &Cred, ino: InodeNo, offset: u64, data: &[u8]) -> Result<usize> {
        self.write_in(cred, &self.inode(ino)?, offset, data)
    }

    /// [`write`](Self::write) to an inode that the caller has.
    pub(crate) fn write_in(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        let durable = self.check_may_write(inode)?;
        if data.is_empty() {
            return Ok(0);
        }
        let end = offset.checked_add(to_u64(data.len())).ok_or_else(|| Error::TooBig)?;
        let contended = inode.rw.last_held_by_other_slot();
        let mut over = None;
        if contended {
            over = self.report(self.overwrite_counted(cred, inode, offset..end, data))?;
        }
        let over = match over {
            Some(over) => over,
            None => self.report(self.overwrite(cred, inode, contended, offset, data))?,
        };
        let written =
            if over { data.len() } else { self.write_anew(cred, inode, offset, end, data)? };
        if durable {
            self.sync_inode(inode, false)?;
        }
        Ok(written)
    }

    /// Writes with the file locked exclusively.
    fn write_anew(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        offset: u64,
        end: u64,
        data: &[u8],
    ) -> Result<usize> {
        self.attempt(|| {
            let mut window = inode.rw.write();
            self.write_exclusively(cred, inode, &mut window, offset..end, data)
        })
    }

    /// Checks the write and writes up to the largest size. `[inode.rw]` is held exclusively.
    pub(super) fn write_exclusively(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        window: &mut Window,
        range: Range<u64>,
        data: &[u8],
    ) -> Result<usize> {
        check_still_regular(inode)?;
        let room = self.max_size(inode).saturating_sub(range.start);
        if room == 0 {
            return Err(Error::TooBig);
        }
        let data = &data[..usize::try_from(room).map_or(data.len(), |room| room.min(data.len()))];
        let (size, append) = inode.with(|state| (state.disk.size, state.has_flag(flags::APPEND)));
        if append && range.start != size {
            return Err(Error::Perm);
        }
        self.begin_change(inode)?;
        self.write_locked(cred, inode, window, range.start, data)
    }

    /// Writes `data` at the file's end; returns that offset.
    ///
    /// # Errors
    /// As [`write`](Self::write); also [`Error::NoSpace`] if only a part could be written, which
    /// stays.
    pub fn append(&self, cred: &Cred, ino: InodeNo, data: &[u8]) -> Result<u64> {
        self.append_in(cred, &self.inode(ino)?, data)
    }

    /// [`append`](Self::append) to an inode that the caller has.
    pub(crate) fn append_in(&self, cred: &Cred, inode: &Arc<Inode>, data: &[u8]) -> Result<u64> {
        let durable = self.check_may_write(inode)?;
        // An attempt that ran out of space has written a part; the next attempt continues after it.
        let mut begun: Option<(u64, usize)> = None;
        let at = self.attempt(|| {
            let mut window = inode.rw.write();
            check_still_regular(inode)?;
            let size = inode.with(|state| state.disk.size);
            let (offset, done) = begun.unwrap_or((size, 0));
            if offset + to_u64(done) != size {
                return Err(Error::NoSpace); // another writer has changed the end meanwhile
            }
            if offset.checked_add(to_u64(data.len())).is_none_or(|end| end > self.max_size(inode)) {
                return Err(Error::TooBig);
            }
            self.begin_change(inode)?;
            let done = done + self.write_locked(cred, inode, &mut window, size, &data[done..])?;
            begun = Some((offset, done));
            if done == data.len() { Ok(offset) } else { Err(Error::NoSpace) }
        })?;
        if durable {
            self.sync_inode(inode, false)?;
        }
        Ok(at)
    }

    /// Whether the file can be written; true if the write must be durable.
    fn check_may_write(&self, inode: &Inode) -> Result<bool> {
        self.fs.check_writable()?;
        self.check_regular(inode)?;
        let snapshot = inode.snapshot();
        if snapshot.has_any(flags::FIXED_CONTENTS) {
            return Err(Error::Perm);
        }
        if snapshot.has_any(flags::INLINE_DATA) {
            return Err(Error::unsupported("writing a file with inline data"));
        }
        Ok(snapshot.has_any(flags::SYNC))
    }

    /// Overwrites existing blocks, with the file locked shared. False if the write needs more.
    fn overwrite(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        contended: bool,
        offset: u64,
        data: &[u8],
    ) -> Result<bool> {
        let guard = inode.rw.read();
        if contended {
            inode.rw.note_shared(&guard);
        }
        // Under the lock, since the volume may have become read-only during the wait for it.
        self.fs.check_writable()?;
        check_still_regular(inode)?;
        let end = offset + to_u64(data.len());
        let simple = inode.with(|state| {
            let disk = &state.disk;
            let setid = permission::after_write(cred, disk) != disk.mode;
            end <= disk.size && !setid && !state.has_flag(flags::APPEND) && !state.free
        });
        // A damaged size may exceed what a map can address.
        let simple = simple && end / self.fs.block_size() < u64::from(u32::MAX);
        if !simple || attributes::has_capability(&self.fs, inode) {
            return Ok(false);
        }
        let Some((runs, unwritten)) = self.allocated(inode, offset, end)? else { return Ok(false) };
        let mut rest = data;
        for (at, len) in runs {
            let (part, after) = rest.split_at(len);
            self.device_write(at, &[part])?;
            rest = after;
        }
        self.set_unflushed(inode);
        if unwritten {
            match self.convert(inode, self.fs.blocks_of(offset, end)?) {
                // The map has no space: the exclusive holder can zero blocks instead.
                Err(Error::NoSpace) => return Ok(false),
                converted => converted?,
            }
        }
        self.touch_times(cred, inode)?;
        Ok(true)
    }

    /// The device ranges of the bytes from `offset` to `end`, and whether some blocks are
    /// unwritten. `None` if there are holes or parts of unwritten blocks.
    #[allow(clippy::type_complexity)]
    fn allocated(
        &self,
        inode: &Inode,
        offset: u64,
        end: u64,
    ) -> Result<Option<(Vec<(u64, usize)>, bool)>> {
        let block_size = self.fs.block_size();
        let cx = self.fs.map_cx(inode, Privilege::User);
        let root = inode.map.read();
        let mut runs = Vec::with_capacity(1);
        let mut unwritten = false;
        let mut at = offset;
        while at < end {
            let within = at % block_size;
            let blocks = self.fs.blocks_of(at, end)?;
            let want = blocks.end.0 - blocks.start.0;
            let (start, len) = match map::lookup(&cx, &root, blocks.start, want)? {
                Mapping::Written { start, len } => (start, len),
                Mapping::Unwritten { start, len } => {
                    let stop = (at - within + u64::from(len) * block_size).min(end);
                    if within != 0 || !stop.is_multiple_of(block_size) {
                        return Ok(None);
                    }
                    unwritten = true;
                    (start, len)
                }
                Mapping::Hole { .. } => return Ok(None),
            };
            let bytes = (u64::from(len) * block_size - within).min(end - at);
            runs.push((start.0 * block_size + within, to_usize(bytes)));
            at += bytes;
        }
        Ok(Some((runs, unwritten)))
    }

    /// Marks the unwritten blocks of `range` as written. Their data is on the device.
    fn convert(&self, inode: &Arc<Inode>, range: Range<FileBlock>) -> Result<()> {
        let fs = &self.fs;
        let mut start = range.start;
        loop {
            let need = map::change_credits(&inode.map.read()) + credits::INODE;
            let h = fs.start(need)?;
            let cx = fs.map_cx(inode, Privilege::Reserved);
            let done = inode.change_map(&h, Change::Contents, |root| {
                map::convert(&cx, &h, root, start..range.end)
            })?;
            match done {
                Progress::Done => return Ok(()),
                Progress::Stopped(at) => start = at,
            }
        }
    }

    /// Sets the times after an overwrite, unless that was done a moment ago.
    pub(super) fn touch_times(&self, cred: &Cred, inode: &Arc<Inode>) -> Result<()> {
        if !self.fs.ticked(inode) {
            return Ok(());
        }
        let h = self.fs.start(credits::INODE)?;
        self.note_write(&h, inode, cred);
        Ok(())
    }

    /// Notes which flush of the device makes the last write stable.
    pub(super) fn set_unflushed(&self, inode: &Inode) {
        let flush = self.fs.store.next_flush();
        if inode.unflushed.load(Ordering::Relaxed) < flush {
            inode.unflushed.fetch_max(flush, Ordering::Relaxed);
        }
    }

    /// Writes `data` at `offset`. `[inode.rw]` is held exclusively.
    pub(super) fn write_locked(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        window: &mut Window,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        let size = inode.with(|state| state.disk.size);
        if offset > size {
            self.zero_tail(inode, size)?;
        }
        let block_size = self.fs.block_size();
        let (mut done, mut retries) = (0, 0);
        while done < data.len() {
            let at = offset + to_u64(done);
            // Chunks end at block boundaries, so that each block is written once.
            let stop = (at / block_size * block_size + CHUNK).min(offset + to_u64(data.len()));
            let part = &data[done..done + to_usize(stop - at)];
            let releases = self.fs.blocks.releases();
            match self.write_chunk(cred, inode, window, at, part) {
                Ok(written) => done += written,
                // The lock stays held, so no other write gets between two parts of this one.
                Err(Error::NoSpace) if retries < RETRIES && self.fs.reclaim(releases)? => {
                    retries += 1;
                }
                Err(Error::NoSpace) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        self.set_unflushed(inode);
        Ok(done)
    }

    /// Writes the first run of blocks of `data` in one handle.
    fn write_chunk(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        window: &mut Window,
        at: u64,
        data: &[u8],
    ) -> Result<usize> {
        let fs = &self.fs;
        let blocks = self.fs.blocks_of(at, at + to_u64(data.len()))?;
        let privilege = privilege(fs, cred);
        let (want, need) = {
            let root = inode.map.read();
            let most = map::max_insert_len(&root, &fs.geometry);
            let want = (blocks.end.0 - blocks.start.0).min(most);
            (want, credits::insert_run(&root, &fs.geometry, want))
        };
        let h = fs.start(need)?;
        let cx = fs.map_cx(inode, privilege);
        let found = map::lookup(&cx, &inode.map.read(), blocks.start, want)?;
        let (run, fresh) = match found {
            Mapping::Written { start, len } => (BlockRun { start, len }, false),
            Mapping::Unwritten { start, len } => (BlockRun { start, len }, true),
            Mapping::Hole { len, goal } => {
                let goal =
                    goal.or_else(|| window.take_rewrite_goal()).or_else(|| self.file_goal(inode));
                let request = BlockRequest::data(inode.ino, goal, len.min(want), privilege);
                (self.allocate(&h, inode, window, request)?, true)
            }
        };
        let written = self.write_run(at, data, run, fresh);
        if written.is_err() && matches!(found, Mapping::Hole { .. }) {
            // They are not mapped.
            fs.blocks.free(&h, run.start, run.len, BlockKind::Data)?;
        }
        let mut bytes = written?;
        match found {
            Mapping::Written { .. } => {}
            Mapping::Unwritten { .. } => {
                let end = FileBlock(blocks.start.0 + run.len);
                let range = blocks.start..end;
                let reserved = fs.map_cx(inode, Privilege::Reserved);
                let convert = |root: &mut _| map::convert(&reserved, &h, root, range.clone());
                match inode.change_map(&h, Change::Contents, convert) {
                    Ok(Progress::Done) => {}
                    Ok(Progress::Stopped(_)) | Err(Error::NoSpace) => {
                        fs.convert_zeroed(&h, inode, 0, &[range])?;
                    }
                    Err(error) => return Err(error),
                }
            }
            Mapping::Hole { .. } => {
                let state = ExtentState::Written;
                let kept = self.insert(&h, inode, blocks.start, run, state, privilege)?;
                let room = u64::from(kept) * self.fs.block_size() - at % self.fs.block_size();
                bytes = bytes.min(to_usize(room));
            }
        }
        let end = at + to_u64(bytes);
        if end > inode.with(|state| state.disk.size) {
            self.note_size(&h, inode, end);
        }
        self.note_write(&h, inode, cred);
        Ok(bytes)
    }

    /// Maps the new blocks `run` to the hole at `at` and frees those for which the map has no
    /// space. Returns the number of blocks mapped, at least one.
    pub(super) fn insert(
        &self,
        h: &Handle<'_>,
        inode: &Arc<Inode>,
        at: FileBlock,
        run: BlockRun,
        state: ExtentState,
        privilege: Privilege,
    ) -> Result<u32> {
        let cx = self.fs.map_cx(inode, privilege);
        let mapped =
            inode.change_map(h, Change::Contents, |root| map::insert(&cx, h, root, at, run, state));
        let kept = *mapped.as_ref().unwrap_or(&0);
        if kept < run.len {
            let rest = BlockNo(run.start.0 + u64::from(kept));
            self.fs.blocks.free(h, rest, run.len - kept, BlockKind::Data)?;
        }
        mapped
    }

    /// Allocates contiguous blocks for data: as many of those requested as are adjacent.
    pub(super) fn allocate(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        window: &mut Window,
        request: BlockRequest,
    ) -> Result<BlockRun> {
        // A map of pointers holds 32-bit block numbers.
        let indirect = inode.map.read().kind() == MapKind::Indirect;
        let run = self.fs.blocks.allocate_growing(h, &request, window)?;
        if indirect && run.end().0 > u64::from(u32::MAX) {
            self.fs.blocks.free(h, run.start, run.len, BlockKind::Data)?;
            return Err(Error::NoSpace);
        }
        Ok(run)
    }

    /// The preferred place of a file's first block: its inode's group.
    pub(super) fn file_goal(&self, inode: &Inode) -> Option<BlockNo> {
        Some(self.fs.inodes.data_goal(inode.ino, InodeKind::File))
    }

    /// Writes the start of `data`, at `at` of the file, to `run`. With `fresh` it also zeroes the
    /// rest of the first and the last block.
    fn write_run(&self, at: u64, data: &[u8], run: BlockRun, fresh: bool) -> Result<usize> {
        let block_size = self.fs.block_size();
        let within = at % block_size;
        let room = u64::from(run.len) * block_size - within;
        let bytes = to_usize(room.min(to_u64(data.len())));
        let start = run.start.0 * block_size;
        if !fresh {
            self.device_write(start + within, &[&data[..bytes]])?;
            return Ok(bytes);
        }
        let tail = (block_size - (within + to_u64(bytes)) % block_size) % block_size;
        let parts = [&ZEROS[..to_usize(within)], &data[..bytes], &ZEROS[..to_usize(tail)]];
        self.device_write(start, &parts)?;
        Ok(bytes)
    }

    /// Writes `data` at byte `offset` of the device.
    #[inline]
    pub(super) fn device_write_one(&self, offset: u64, data: &[u8]) -> Result<()> {
        let done = self.fs.store.device().write_at(offset, data);
        done.map_err(|source| self.io_error("write", offset, source))
    }

    /// Writes `parts` one after another at byte `offset` of the device.
    pub(super) fn device_write(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let device = self.fs.store.device();
        let filled = |part: &&&[u8]| !part.is_empty();
        let slices: Vec<IoSlice<'_>> =
            parts.iter().filter(filled).map(|part| IoSlice::new(part)).collect();
        let done = match slices.as_slice() {
            [one] => device.write_at(offset, one),
            many => device.write_vectored_at(offset, many),
        };
        done.map_err(|source| self.io_error("write", offset, source))
    }

    /// Fills `buf` from byte `offset` of the device.
    pub(super) fn device_read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let device = self.fs.store.device();
        device.read_at(offset, buf).map_err(|source| self.io_error("read", offset, source))
    }

    pub(super) fn io_error(&self, op: &'static str, offset: u64, source: std::io::Error) -> Error {
        if source.kind() == std::io::ErrorKind::UnexpectedEof {
            let block = offset / self.fs.block_size();
            let field =
                Corrupt::field(Structure::ExtentNode, "device ends before data block", block);
            return field.into();
        }
        let block = BlockNo(offset / self.fs.block_size());
        Error::Io(crate::Cause::new(format!("{op} of data at block {block}: {source}")))
    }
}

impl Fs {
    /// The blocks that contain the bytes from `offset` to `end`.
    ///
    /// # Errors
    /// [`Error::TooBig`] for bytes that no map can address, as with a damaged size.
    #[inline]
    pub(super) fn blocks_of(&self, offset: u64, end: u64) -> Result<Range<FileBlock>> {
        let block_size = self.block_size();
        Ok(file_block(offset / block_size)?..file_block(end.div_ceil(block_size))?)
    }

    /// Whether an overwrite must set the times: they were not set within the last [`TICK_NANOS`].
    pub(super) fn ticked(&self, inode: &Inode) -> bool {
        let (last, wide) = inode.with(|state| (state.disk.mtime, state.disk.has_wide_times()));
        let nanos = |t: nextent_ondisk::DiskTime| {
            i128::from(t.seconds) * 1_000_000_000 + i128::from(t.nanos)
        };
        let passed = nanos(self.now().clamped(wide)) - nanos(last);
        !(0..TICK_NANOS).contains(&passed)
    }
}
