//! Direct transfers of a volume whose direct writes are replaced: the engine's side of
//! [`crate::inode::seam`].
//!
//! A call that waits for its data keeps the lock of the inode until all is done. A queue lets the
//! lock go when the transfer is under way, and counts the transfer in one word. Each write converts
//! for itself. What needs parts of fresh blocks zeroed, allocates or grows the file is done by the
//! exclusive holder, with no transfer in flight.

use std::ops::Range;

use nextent_device::queue::Direction;
use nextent_num::to_usize;
use nextent_ondisk::FileBlock;
use nextent_sync::Arc;

use super::super::write::still_there;
use super::Wait;
use super::queue::{After, Ask, Queue, Start};
use crate::Cred;
use crate::alloc::Privilege;
use crate::error::{Error, Result};
use crate::inode::long::{Finished, Plan};
use crate::inode::seam::{Begun, DirectWrites, Extents, Held, Write};
use crate::inode::{Change, Inode, credits};
use crate::map::{self, Mapping, Progress};
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
            Begun::Alone(mut window) => {
                return self.write_exclusively(cred, inode, &mut window, range, data);
            }
            Begun::Blocked => return Err(Error::WouldBlock),
        };
        self.write_pieces(inode, &plan, data)?;
        match self.finish_replaced(cred, inode, plan.finished, wait) {
            // Without room in the map: by the exclusive holder.
            Err(Error::NoSpace) => {}
            done => return done.map(|()| data.len()),
        }
        drop(held);
        let mut window = inode.rw.write();
        self.write_exclusively(cred, inode, &mut window, range, data)
    }

    /// Converts what one write has written, or sets the times.
    pub(super) fn finish_replaced(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        finished: Finished,
        wait: Wait,
    ) -> Result<()> {
        if !finished.blocks.is_empty() {
            return self.convert_together(cred, inode, finished);
        }
        match wait {
            Wait::Allowed => self.touch_times(cred, inode),
            Wait::Never => Ok(()),
        }
    }

    /// Fills `buf` from `offset` with the lock shared.
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
        // What a reader finds out with a reference holds here too.
        self.read_by_reference(inode, offset, buf, wait)
    }
}

impl Queue<'_> {
    /// Begins a write as `rule` says.
    pub(super) fn begin_replaced(
        &mut self,
        rule: &dyn DirectWrites,
        ask: &mut Ask,
        range: Range<u64>,
    ) -> Result<Start> {
        let (volume, wait) = (self.volume, ask.wait);
        for has_transfers in [true, false] {
            let of = self.files[ask.file].as_ref();
            let OpenFile { inode, cred, .. } =
                of.expect("a file is attached as long as it is used");
            let may_wait = wait == Wait::Allowed;
            let range = range.clone();
            let write = Write { fs: &volume.fs, cred, inode, range, may_wait, has_transfers };
            let begin = || rule.begin(&write);
            match match wait {
                Wait::Allowed => volume.attempt(begin)?,
                Wait::Never => volume.tell(begin())?,
            } {
                Begun::Planned(held, plan) => {
                    let after = After::Write(plan.finished, wait);
                    ask.fly(&mut self.air, Direction::Write, plan.pieces, inode.rw.count(), after);
                    // The transfer is under way.
                    drop(held);
                    return Ok(Start::Off);
                }
                // Also for an exclusive holder: the call that waits does it.
                Begun::Alone(_) | Begun::Blocked => {}
            }
            if has_transfers {
                self.clear();
            }
        }
        Ok(Start::Not)
    }
}

impl<'i> Write<'i> {
    /// Whether the write may wait for locks and for the journal.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        self.may_wait
    }

    /// Whether the caller has transfers in flight, for which the holder of a lock may wait: the
    /// write must then not wait for a lock without end.
    #[must_use]
    pub fn has_transfers(&self) -> bool {
        self.has_transfers
    }

    /// Whether an exclusive holder waits for transfers in flight.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        self.inode.rw.is_waited_for()
    }

    /// The lock shared.
    #[must_use]
    pub fn shared(&self) -> Held<'i> {
        Held::Shared(self.inode.rw.read())
    }

    /// The lock shared, if it is free.
    #[must_use]
    pub fn try_shared(&self) -> Option<Held<'i>> {
        self.inode.rw.try_read().map(Held::Shared)
    }

    /// The lock exclusively; transfers may be in flight.
    #[must_use]
    pub fn exclusive(&self) -> Held<'i> {
        Held::Exclusive(self.inode.rw.write_beside_transfers())
    }

    /// The lock exclusively, if it is free; transfers may be in flight.
    #[must_use]
    pub fn try_exclusive(&self) -> Option<Held<'i>> {
        self.inode.rw.try_write_beside_transfers().map(Held::Exclusive)
    }

    /// The lock exclusively, once no transfer is in flight: all is left to the holder.
    #[must_use]
    pub fn alone(&self) -> Begun<'i> {
        Begun::Alone(self.inode.rw.write())
    }

    /// Whether the write would set the file's times, for which it needs a handle.
    #[must_use]
    pub fn sets_times(&self) -> bool {
        self.fs.ticked(self.inode)
    }

    /// What the range is made of, and where its bytes go. None if the range is not all allocated
    /// and inside the file, or if the writer drops privileges of the file. The caller holds the
    /// lock.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a file that is gone; [`Error::WouldBlock`] where the write may not
    /// wait; a damaged map or a failed read of it.
    pub fn extents(&self) -> Result<Option<(Extents, Plan)>> {
        let Self { fs, cred, inode, range, .. } = self;
        still_there(inode)?;
        let wait = if self.may_wait { Wait::Allowed } else { Wait::Never };
        if fs.takes_rights(cred, inode, wait)? || range.end > inode.with(|state| state.disk.size) {
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
            let within = at % block_size;
            let blocks = fs.blocks_of(at, range.end)?;
            let want = blocks.end.0 - blocks.start.0;
            let (start, len) = match map::lookup(&cx, &root, blocks.start, want)? {
                Mapping::Hole { .. } => return Ok(None),
                Mapping::Written { start, len } => (start, len),
                Mapping::Unwritten { start, len } => {
                    plan.finished.blocks.push(blocks.start..FileBlock(blocks.start.0 + len));
                    (start, len)
                }
            };
            runs += 1;
            let bytes = (u64::from(len) * block_size - within).min(range.end - at);
            plan.push(start.0 * block_size + within, to_usize(bytes));
            at += bytes;
        }
        let unwritten = !plan.finished.blocks.is_empty();
        Ok(Some((Extents { aligned, one_run: runs == 1, unwritten }, plan)))
    }

    /// Makes extents of their own of the unwritten blocks of `plan`, in a handle.
    ///
    /// # Errors
    /// Of the journal; a damaged map or a failed read of it. Without room in the map it does
    /// nothing, and the conversion finds another way.
    pub fn split(&self, plan: &Plan) -> Result<()> {
        let Self { fs, inode, .. } = self;
        for run in &plan.finished.blocks {
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
