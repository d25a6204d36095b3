//! Direct writes as ext4 did them: the lock of the inode shared or exclusive, by what is written.
//!
//! A write begins under the lock, shared if the design's [`Rule`] allows that for where the bytes
//! go, else exclusively. A call that waits for its data keeps the lock until all is done, as Linux
//! does; what a queue submits is counted in one word, and the lock let go. Each write converts for
//! itself. What needs parts of fresh blocks zeroed, allocates or grows the file has it alone in all
//! of them, without others in flight.

mod alone_unless_written;
mod shared_if_allocated;
mod split_after;

use std::ops::Range;

use nextent_num::to_usize;
use nextent_ondisk::FileBlock;
use nextent_sync::{Arc, OwnRwLockReadGuard, OwnRwLockWriteGuard, thread};

use super::super::write::still_there;
use super::Wait;
use super::plan::Plan;
use crate::Cred;
use crate::alloc::{Privilege, Window};
use crate::design::DirectWrites;
use crate::error::{Error, Result};
use crate::inode::long::Finished;
use crate::inode::{Change, Inode, credits};
use crate::map::{self, Mapping, Progress};
use crate::ops::Inodes;

/// What a range inside a file, which nobody cuts meanwhile, is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lie {
    /// Whole blocks.
    aligned: bool,
    /// One run of the device.
    one_run: bool,
    /// Some blocks are unwritten.
    unwritten: bool,
}

/// How a write of allocated blocks inside a file, by one who takes no rights away, goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The lock shared.
    Shared,
    /// The lock exclusively, with other transfers in flight.
    Exclusive,
    /// The file alone, no other transfer in flight.
    Alone,
}

/// What a design decides.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    /// Which lock.
    way: fn(Lie) -> Way,
    /// Unwritten extents are split in a handle before the data.
    splits_before: bool,
}

/// The rule of a design of the past.
#[inline]
pub(super) fn rule(direct: DirectWrites) -> Option<&'static Rule> {
    match direct {
        DirectWrites::References => None,
        DirectWrites::AloneUnlessWritten => Some(&alone_unless_written::RULE),
        DirectWrites::SharedIfAllocated => Some(&shared_if_allocated::RULE),
        DirectWrites::SplitAfter => Some(&split_after::RULE),
    }
}

/// The lock of a write that has begun.
pub(super) enum Held<'i> {
    Shared(#[allow(dead_code)] OwnRwLockReadGuard<'i, Window>),
    Exclusive(#[allow(dead_code)] OwnRwLockWriteGuard<'i, Window>),
}

/// A write that has begun.
pub(super) enum Begun<'i> {
    /// The data may go to these places.
    Planned(Held<'i>, Plan),
    /// All is to be done with the file alone.
    Alone(OwnRwLockWriteGuard<'i, Window>),
    /// Not begun: a lock is to be waited for by who has nothing in flight.
    Blocked,
}

/// How long who begins a write waits for a lock. Its holder may wait for transfers in flight, so
/// who has some gives up soon, and at once if somebody does wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// Until it is had.
    Endless,
    /// So many tries, others running between them.
    Tries(u32),
}

impl Patience {
    /// Takes a lock.
    fn take<G>(
        self,
        inode: &Inode,
        attempt: impl Fn() -> Option<G>,
        wait: impl FnOnce() -> G,
    ) -> Option<G> {
        if let Some(guard) = attempt() {
            return Some(guard);
        }
        let Self::Tries(tries) = self else { return Some(wait()) };
        for _ in 0..tries {
            if inode.rw.is_waited_for() {
                return None;
            }
            thread::yield_now();
            if let Some(guard) = attempt() {
                return Some(guard);
            }
        }
        None
    }
}

impl Inodes {
    /// Writes `data` to `range` by `rule`.
    pub(super) fn write_by_locks(
        &self,
        rule: &Rule,
        cred: &Cred,
        inode: &Arc<Inode>,
        range: Range<u64>,
        data: &[u8],
        wait: Wait,
    ) -> Result<usize> {
        let endless = Patience::Endless;
        let (held, plan) = match self.begin_by_locks(rule, cred, inode, &range, wait, endless)? {
            Begun::Planned(held, plan) => (held, plan),
            Begun::Alone(mut window) => {
                return self.write_exclusively(cred, inode, &mut window, range, data);
            }
            Begun::Blocked => return Err(Error::WouldBlock),
        };
        self.write_pieces(inode, &plan, data)?;
        match self.finish_by_itself(cred, inode, plan.finished, wait) {
            // Without room in the map: by who has the file alone.
            Err(Error::NoSpace) => {}
            done => return done.map(|()| data.len()),
        }
        drop(held);
        let mut window = inode.rw.write();
        self.write_exclusively(cred, inode, &mut window, range, data)
    }

    /// Takes the lock that `rule` says, with `patience`, and finds out where the data goes.
    pub(super) fn begin_by_locks<'i>(
        &self,
        rule: &Rule,
        cred: &Cred,
        inode: &'i Arc<Inode>,
        range: &Range<u64>,
        wait: Wait,
        patience: Patience,
    ) -> Result<Begun<'i>> {
        let rw = &inode.rw;
        let shared = match wait {
            Wait::Allowed => patience.take(inode, || rw.try_read(), || rw.read()),
            Wait::Never => Some(rw.try_read().ok_or_else(|| Error::WouldBlock)?),
        };
        let Some(shared) = shared else { return Ok(Begun::Blocked) };
        let way = match self.lie(cred, inode, range, wait)? {
            Some((lie, plan)) => {
                let way = (rule.way)(lie);
                if way == Way::Shared {
                    if wait == Wait::Never && (lie.unwritten || self.ticked(inode)) {
                        return Err(Error::WouldBlock);
                    }
                    self.split_before(rule, inode, &plan)?;
                    return Ok(Begun::Planned(Held::Shared(shared), plan));
                }
                way
            }
            None => Way::Alone,
        };
        drop(shared);
        if wait == Wait::Never {
            return Err(Error::WouldBlock);
        }
        if way == Way::Exclusive {
            let attempt = || rw.try_write_beside_transfers();
            let exclusive = patience.take(inode, attempt, || rw.write_beside_transfers());
            let Some(exclusive) = exclusive else { return Ok(Begun::Blocked) };
            // All may be different by now.
            if let Some((lie, plan)) = self.lie(cred, inode, range, wait)?
                && (rule.way)(lie) != Way::Alone
            {
                self.split_before(rule, inode, &plan)?;
                return Ok(Begun::Planned(Held::Exclusive(exclusive), plan));
            }
        }
        // Others in flight are waited for, so there must be none of the caller's.
        match patience {
            Patience::Endless => Ok(Begun::Alone(rw.write())),
            Patience::Tries(_) => Ok(Begun::Blocked),
        }
    }

    /// What `range` is made of; none if it is not all allocated and inside the file, or if the
    /// writer takes rights away. The caller holds the lock.
    fn lie(
        &self,
        cred: &Cred,
        inode: &Inode,
        range: &Range<u64>,
        wait: Wait,
    ) -> Result<Option<(Lie, Plan)>> {
        still_there(inode)?;
        if self.takes_rights(cred, inode, wait)? || range.end > inode.with(|state| state.disk.size)
        {
            return Ok(None);
        }
        let block_size = self.fs.block_size();
        let cx = self.fs.map_cx(inode, Privilege::User);
        let root = match wait {
            Wait::Allowed => inode.map.read(),
            Wait::Never => inode.map.try_read().ok_or_else(|| Error::WouldBlock)?,
        };
        if wait == Wait::Never && root.depth() > 0 {
            return Err(Error::WouldBlock);
        }
        let aligned =
            range.start.is_multiple_of(block_size) && range.end.is_multiple_of(block_size);
        let mut plan = Plan::default();
        let mut runs = 0;
        let mut at = range.start;
        while at < range.end {
            let within = at % block_size;
            let blocks = self.blocks_of(at, range.end)?;
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
        Ok(Some((Lie { aligned, one_run: runs == 1, unwritten }, plan)))
    }

    /// Makes extents of their own of what is unwritten, if the rule does that before the data.
    fn split_before(&self, rule: &Rule, inode: &Arc<Inode>, plan: &Plan) -> Result<()> {
        if !rule.splits_before {
            return Ok(());
        }
        for run in &plan.finished.blocks {
            loop {
                let need = map::change_credits(&inode.map.read()) + credits::INODE + 5;
                let h = self.fs.start(need)?;
                let cx = self.fs.map_cx(inode, Privilege::Reserved);
                let done = inode.change_map(&h, Change::Contents, |root| {
                    map::split(&cx, &h, root, run.clone())
                });
                match done {
                    // Without room for it, the conversion finds another way.
                    Ok(Progress::Done) | Err(Error::NoSpace) => break,
                    Ok(Progress::Stopped(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Converts what one write has written, or sets the times.
    pub(super) fn finish_by_itself(
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
    pub(super) fn read_by_locks(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        buf: &mut [u8],
        wait: Wait,
    ) -> Result<usize> {
        if wait == Wait::Allowed {
            return self.read_in(inode, offset, buf);
        }
        // What is found out with a reference holds for a reader of any design.
        self.read_by_reference(inode, offset, buf, wait)
    }
}
