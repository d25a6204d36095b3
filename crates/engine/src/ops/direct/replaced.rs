//! Direct transfers of a volume whose direct writes are replaced: the engine's side of
//! [`crate::inode::seam`].
//!
//! A synchronous call holds the inode's lock until everything is done. A queue releases the lock
//! once the transfer is in flight, and counts the transfer in one word. Each write converts its own
//! blocks. Writes that zero parts of new blocks, allocate or grow the file are done by the
//! exclusive holder, with no transfer in flight.

use std::ops::Range;

use nextent_sync::Arc;

use super::super::write::check_still_regular;
use super::Wait;
use super::queue::{Queue, Request, Submission, attached};
use crate::Cred;
use crate::alloc::Privilege;
use crate::error::{Error, Result};
use crate::inode::rw_lock::{PendingConversion, Plan};
use crate::inode::seam::{Begun, DirectWrites, Extents, Held, Write};
use crate::inode::{Change, Inode, credits};
use crate::map::{self, Progress};
use crate::ops::{Inodes, OpenFile};

impl Inodes {
    /// Writes `data` to `range`, beginning as `rule` says.
    pub(super) fn write_replaced(
        &self,
        rule: &dyn DirectWrites,
        cred: &Cred,
        inode: &Arc<Inode>,
        range: Range<u64>,
        data: &[u8],
        wait: Wait,
    ) -> Result<usize> {
        let may_wait = wait == Wait::Allowed;
        let write = Write {
            fs: &self.fs,
            cred,
            inode,
            range: range.clone(),
            may_wait,
            has_transfers: false,
        };
        let (held, plan) = match rule.begin(&write)? {
            Begun::Planned(held, plan) => (held, plan),
            Begun::ExclusiveDrained(mut window) => {
                return self.write_exclusively(cred, inode, &mut window, range, data);
            }
            Begun::Blocked => return Err(Error::WouldBlock),
        };
        self.write_pieces(inode, &plan, data)?;
        match self.complete_replaced(cred, inode, plan.conversion, wait) {
            // The map has no space: the exclusive holder writes it again.
            Err(Error::NoSpace) => {}
            done => return done.map(|()| data.len()),
        }
        drop(held);
        let mut window = inode.rw.write();
        self.write_exclusively(cred, inode, &mut window, range, data)
    }

    /// Converts the blocks of one write, or sets the times.
    pub(super) fn complete_replaced(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        conversion: PendingConversion,
        wait: Wait,
    ) -> Result<()> {
        if !conversion.blocks.is_empty() {
            return self.convert_batch(cred, inode, conversion);
        }
        match wait {
            Wait::Allowed => self.touch_times(cred, inode),
            Wait::Never => Ok(()),
        }
    }

    /// Fills `buf` from `offset` with the lock held shared.
    pub(super) fn read_replaced(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        buf: &mut [u8],
        wait: Wait,
    ) -> Result<usize> {
        if wait == Wait::Allowed {
            return self.read_in(inode, offset, buf);
        }
        // A counted read relies only on what holds under replaced writes too.
        self.read_counted(inode, offset, buf, wait)
    }
}

impl Queue<'_> {
    /// Begins a write as `rule` says.
    pub(super) fn begin_replaced(
        &mut self,
        rule: &dyn DirectWrites,
        request: &mut Request,
        range: Range<u64>,
    ) -> Result<Submission> {
        let (volume, wait) = (self.volume, request.wait);
        for has_transfers in [true, false] {
            let OpenFile { inode, cred, .. } = attached(&self.files, request.file);
            let may_wait = wait == Wait::Allowed;
            let range = range.clone();
            let write = Write { fs: &volume.fs, cred, inode, range, may_wait, has_transfers };
            match volume.attempt_as(wait, || rule.begin(&write))? {
                Begun::Planned(held, plan) => {
                    let count = inode.rw.count_in_word();
                    let submitted = request.submit_write(&mut self.transfers, plan, count);
                    drop(held);
                    return Ok(submitted);
                }
                // Also if an exclusive holder must write: the synchronous call does that.
                Begun::ExclusiveDrained(_) | Begun::Blocked => {}
            }
            if has_transfers {
                self.complete_all();
            }
        }
        Ok(Submission::NeedsExclusive)
    }
}

impl<'i> Write<'i> {
    /// Whether the write may wait for locks and for the journal.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        self.may_wait
    }

    /// Whether the caller has transfers in flight. The holder of a lock may wait for those, so the
    /// write must not wait for a lock indefinitely.
    #[must_use]
    pub fn has_transfers(&self) -> bool {
        self.has_transfers
    }

    /// Whether an exclusive holder waits for transfers in flight.
    #[must_use]
    pub fn has_exclusive_waiter(&self) -> bool {
        self.inode.rw.has_exclusive_waiter()
    }

    /// Takes the lock shared.
    #[must_use]
    pub fn shared(&self) -> Held<'i> {
        Held::Shared(self.inode.rw.read())
    }

    /// Takes the lock shared if it is free.
    #[must_use]
    pub fn try_shared(&self) -> Option<Held<'i>> {
        self.inode.rw.try_read().map(Held::Shared)
    }

    /// Takes the lock exclusively; transfers may be in flight.
    #[must_use]
    pub fn exclusive(&self) -> Held<'i> {
        Held::Exclusive(self.inode.rw.write_undrained())
    }

    /// Takes the lock exclusively if it is free; transfers may be in flight.
    #[must_use]
    pub fn try_exclusive(&self) -> Option<Held<'i>> {
        self.inode.rw.try_write_undrained().map(Held::Exclusive)
    }

    /// Takes the lock exclusively and waits until no transfer is in flight: the holder does the
    /// whole write.
    #[must_use]
    pub fn exclusive_drained(&self) -> Begun<'i> {
        Begun::ExclusiveDrained(self.inode.rw.write())
    }

    /// Whether the write sets the file's times, which needs a handle.
    #[must_use]
    pub fn sets_times(&self) -> bool {
        self.fs.ticked(self.inode)
    }

    /// Properties of the range, and where its bytes go. `None` if some of the range is not
    /// allocated or past the end, or if the writer drops rights of the file. The caller holds the
    /// lock.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a file that was removed. [`Error::WouldBlock`] where the write must
    /// not wait. A damaged map or a failed read of it.
    pub fn extents(&self) -> Result<Option<(Extents, Plan)>> {
        let Self { fs, cred, inode, range, .. } = self;
        check_still_regular(inode)?;
        let wait = if self.may_wait { Wait::Allowed } else { Wait::Never };
        if fs.needs_exclusive(cred, inode, wait)? || range.end > inode.with(|state| state.disk.size)
        {
            return Ok(None);
        }
        let block_size = fs.block_size();
        let cx = fs.map_cx(inode, Privilege::User);
        let root = match self.may_wait {
            true => inode.map.read(),
            false => inode.map.try_read().ok_or_else(|| Error::WouldBlock)?,
        };
        if !self.may_wait && root.depth() > 0 {
            return Err(Error::WouldBlock);
        }
        let aligned =
            range.start.is_multiple_of(block_size) && range.end.is_multiple_of(block_size);
        let mut plan = Plan::default();
        let mut runs = 0;
        let mut at = range.start;
        while at < range.end {
            let blocks = fs.blocks_of(at, range.end)?;
            let want = blocks.end.0 - blocks.start.0;
            let found = map::lookup(&cx, &root, blocks.start, want)?;
            let begin = (blocks.start, at % block_size);
            let Some(bytes) = plan.push(found, begin, range.end - at, block_size) else {
                return Ok(None);
            };
            runs += 1;
            at += bytes;
        }
        let unwritten = !plan.conversion.blocks.is_empty();
        Ok(Some((Extents { aligned, one_run: runs == 1, unwritten }, plan)))
    }

    /// Splits the unwritten blocks of `plan` off into extents of their own, in a handle.
    ///
    /// # Errors
    /// Errors of the journal; a damaged map or a failed read of it. Without space in the map it
    /// does nothing, and the conversion falls back to another way.
    pub fn split(&self, plan: &Plan) -> Result<()> {
        let Self { fs, inode, .. } = self;
        for run in &plan.conversion.blocks {
            loop {
                let need = map::change_credits(&inode.map.read()) + credits::INODE + 5;
                let h = fs.start(need)?;
                let cx = fs.map_cx(inode, Privilege::Reserved);
                let done = inode.change_map(&h, Change::Contents, |root| {
                    map::split(&cx, &h, root, run.clone())
                });
                match done {
                    Ok(Progress::Done) | Err(Error::NoSpace) => break,
                    Ok(Progress::Stopped(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}
