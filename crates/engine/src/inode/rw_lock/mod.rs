//! The lock `inode.rw`, and the in-flight I/O count of direct transfers.
//!
//! [`InodeRwLock`] is a reader-writer lock. For a file with direct I/O it also has a [`SharedIo`]:
//! a transfer counts itself in its own slot and does not touch the lock, and the exclusive holder
//! waits until no transfer is in flight. So truncate, punch and collapse wait for I/O in flight,
//! and an overwrite stores to no cache line that another core stores to.
//!
//! - A transfer in flight excludes exclusive holders only. It is like the lock held shared, but it
//!   may end on another thread.
//! - An exclusive holder closes the *fast path* of transfers. On the *slow path* a transfer begins
//!   under the lock held shared. After [`shared_io::SLOW_BEGINS`] of those the fast path opens
//!   again.
//! - Each exclusive hold begins another *generation*. State that changes only under an exclusive
//!   hold stays valid within one generation; each slot caches such state in an [`ExtentCache`].
//!
//! Buffered reads and overwrites hold the lock shared, which is cheapest while one thread at a time
//! uses the file. After [`SLOT_SWITCHES`] calls that found the lock last held by another slot
//! ([`InodeRwLock::note_shared`]) the file gets a [`SharedIo`], and buffered calls use the fast
//! path where it is open.

mod block_set;
mod deferred;
mod extent_cache;
mod group_conversion;
mod plan;
mod shared_io;
mod word_count;

#[cfg(all(test, feature = "model-shuttle"))]
mod models;
#[cfg(all(test, not(feature = "model-shuttle")))]
mod tests;

pub(crate) use deferred::merge_runs;
pub(crate) use extent_cache::ExtentCache;
pub(crate) use group_conversion::{PendingConversion, Role, Ticket};
pub use plan::Plan;
pub(crate) use shared_io::SharedIo;

use nextent_num::must_fit;
use nextent_sync::atomic::{AtomicU32, Ordering};
use nextent_sync::{
    BiasedRwLock, BiasedRwLockReadGuard, BiasedRwLockWriteGuard, OnceLock, RankToken, current_slot,
    enter_rank,
};

use super::locks;
use crate::alloc::Window;

/// Calls that find the lock last held by another slot before the file gets a [`SharedIo`]. Its
/// memory pays off only for a file that several cores use for long.
const SLOT_SWITCHES: u32 = if cfg!(feature = "model-shuttle") { 1 } else { 64 };

/// Value of `last_slot` after a buffered fast-path transfer.
const SEVERAL_SLOTS: u32 = u32::MAX;

/// The lock `inode.rw`: a directory's entries, or a file's size and contents.
pub(crate) struct InodeRwLock {
    /// Guards the window for the file's growth, which the exclusive holder uses.
    lock: BiasedRwLock<Window>,
    /// Set by the first direct transfer, or after enough slot switches of buffered calls.
    io: OnceLock<Box<SharedIo>>,
    /// One more than the slot of the last buffered call that held the lock shared, or
    /// [`SEVERAL_SLOTS`]. Relaxed: a heuristic, stored only when it changes; that core has just
    /// taken the lock's line.
    last_slot: AtomicU32,
    /// How often `last_slot` changed while there was no [`SharedIo`]. Relaxed: some may get lost.
    switches: AtomicU32,
}

/// A transfer in flight: no thread holds the lock exclusively while it lives.
#[must_use = "the transfer ends when this is dropped"]
pub(crate) struct Transfer<'i> {
    io: &'i SharedIo,
    /// The file's generation during the transfer.
    pub(crate) generation: u64,
    rank: Option<RankToken>,
}

/// How a transfer that outlives its call is counted in flight; [`InodeRwLock::end_transfer`] ends
/// it, on any thread.
#[must_use = "it must be passed to `end_transfer`"]
#[derive(Debug)]
pub(crate) enum InFlightCount {
    /// In the counts of a slot.
    PerSlot,
    /// In one word ([`word_count`]): a replaced write that has released its lock.
    #[cfg(feature = "lab")]
    Word,
}

impl InodeRwLock {
    pub(super) fn new() -> Self {
        Self {
            lock: BiasedRwLock::new(&locks::INODE_RW, Window::new()),
            io: OnceLock::new(),
            last_slot: AtomicU32::new(0),
            switches: AtomicU32::new(0),
        }
    }

    /// Waits for shared access.
    #[inline]
    #[track_caller]
    pub(crate) fn read(&self) -> BiasedRwLockReadGuard<'_, Window> {
        self.lock.read()
    }

    /// Waits for exclusive access, and for transfers in flight.
    #[inline]
    #[track_caller]
    pub(crate) fn write(&self) -> BiasedRwLockWriteGuard<'_, Window> {
        let guard = self.lock.write();
        if let Some(io) = self.io.get() {
            io.drain();
        }
        guard
    }

    /// Takes shared access without waiting.
    #[track_caller]
    pub(crate) fn try_read(&self) -> Option<BiasedRwLockReadGuard<'_, Window>> {
        self.lock.try_read()
    }

    /// Ends a transfer that outlived its call.
    #[inline]
    pub(crate) fn end_transfer(&self, count: InFlightCount) {
        match count {
            InFlightCount::PerSlot => self.io().end(),
            #[cfg(feature = "lab")]
            InFlightCount::Word => self.io().end_in_word(),
        }
    }

    /// Takes exclusive access without waiting; fails if a transfer is in flight.
    #[inline]
    #[track_caller]
    pub(crate) fn try_write(&self) -> Option<BiasedRwLockWriteGuard<'_, Window>> {
        let guard = self.lock.try_write()?;
        let drained = self.io.get().is_none_or(|io| io.try_drain());
        drained.then_some(guard)
    }

    /// Counts a conversion that found mostly written blocks.
    pub(crate) fn note_needless_conversion(&self) {
        if let Some(io) = self.io.get() {
            io.note_needless_conversion();
        }
    }

    /// The shared state, if a conversion was ever deferred.
    #[inline]
    pub(crate) fn io_with_deferred(&self) -> Option<&SharedIo> {
        self.io.get().map(|io| &**io).filter(|io| io.ever_deferred())
    }

    /// The shared state of transfers, made by the first of them.
    #[inline]
    pub(crate) fn io(&self) -> &SharedIo {
        match self.io.get() {
            Some(io) => io,
            None => self.io.get_or_init(|| Box::new(SharedIo::new())),
        }
    }

    /// Begins a transfer. Waits for the exclusive holder.
    ///
    /// Takes `[inode.rw]` shared; on the slow path it is held during this call.
    #[inline]
    #[track_caller]
    pub(crate) fn begin_transfer(&self) -> Transfer<'_> {
        let rank = enter_rank(&locks::INODE_RW);
        let io = self.begin();
        Transfer { io, generation: io.generation(), rank: Some(rank) }
    }

    #[inline]
    fn begin(&self) -> &SharedIo {
        let io = self.io();
        if !io.try_begin() {
            self.begin_slow(io);
        }
        io
    }

    /// Whether another slot held the lock shared last, or a buffered call used the fast path. If
    /// not, a buffered call should take the lock, and need not call
    /// [`note_shared`](Self::note_shared).
    #[inline]
    pub(crate) fn last_held_by_other_slot(&self) -> bool {
        self.last_slot.load(Ordering::Relaxed) != must_fit::<u32, _>(current_slot().index()) + 1
    }

    /// Begins a transfer if the fast path is open. Otherwise the caller takes the lock shared and
    /// calls [`note_shared`](Self::note_shared).
    #[track_caller]
    pub(crate) fn try_fast_transfer(&self) -> Option<Transfer<'_>> {
        let io = self.io.get().filter(|io| io.fast_path_is_open())?;
        let rank = enter_rank(&locks::INODE_RW);
        if !io.try_begin() {
            return None;
        }
        if self.last_slot.load(Ordering::Relaxed) != SEVERAL_SLOTS {
            self.last_slot.store(SEVERAL_SLOTS, Ordering::Relaxed);
        }
        Some(Transfer { io, generation: io.generation(), rank: Some(rank) })
    }

    /// Notes that the caller's slot holds the lock shared to read or overwrite.
    pub(crate) fn note_shared(&self, _held: &BiasedRwLockReadGuard<'_, Window>) {
        let slot = must_fit::<u32, _>(current_slot().index()) + 1;
        let last_slot = self.last_slot.load(Ordering::Relaxed);
        if last_slot != slot {
            self.note_slot_switch(last_slot, slot);
        }
    }

    /// Notes a change of slots while the caller holds the lock shared.
    #[cold]
    fn note_slot_switch(&self, last_slot: u32, slot: u32) {
        self.last_slot.store(slot, Ordering::Relaxed);
        match self.io.get() {
            _ if last_slot == 0 => {}
            Some(io) => io.count_slow_begin(),
            None => {
                let switches = self.switches.load(Ordering::Relaxed);
                self.switches.store(switches + 1, Ordering::Relaxed);
                if switches >= SLOT_SWITCHES {
                    self.io().count_slow_begin();
                }
            }
        }
    }

    /// Begins a transfer if that is possible without waiting.
    #[inline]
    pub(crate) fn try_begin_transfer(&self) -> Option<Transfer<'_>> {
        let io = self.io();
        if !io.try_begin() {
            let _shared = self.lock.try_read()?;
            io.begin_locked();
        }
        Some(Transfer { io, generation: io.generation(), rank: None })
    }

    #[cold]
    fn begin_slow(&self, io: &SharedIo) {
        // The caller's rank token covers this lock: both have the same class.
        let _shared = self.lock.read();
        io.begin_locked();
    }
}

impl Transfer<'_> {
    /// The shared state of the file's transfers.
    pub(crate) fn io(&self) -> &SharedIo {
        self.io
    }

    /// The count without a borrow, for a transfer that outlives the call.
    #[inline]
    pub(crate) fn into_count(mut self) -> InFlightCount {
        drop(self.rank.take());
        std::mem::forget(self);
        InFlightCount::PerSlot
    }
}

impl Drop for Transfer<'_> {
    #[inline]
    fn drop(&mut self) {
        self.io.end();
    }
}
