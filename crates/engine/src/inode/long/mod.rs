//! The long lock of an inode, and the references that direct I/O holds on it instead.
//!
//! [`LongLock`] is `inode.rw`. Directories and files that nobody reads or writes directly use it as
//! the reader-writer lock that it is. A file that is used directly has [`refs::Refs`] beside it:
//! whoever transfers data takes a reference by a store to its own slot, and whoever takes the lock
//! exclusively waits until there are none. So truncating, punching and collapsing wait for I/O in
//! flight, and overwriting touches no line that another core writes.
//!
//! - A reference excludes exclusive holders and nobody else: it is the lock held shared, which
//!   may be let go by another thread.
//! - The first exclusive holder turns the short way to references off; it is on again after
//!   [`refs::CALM`] of them were taken the long way, under the lock held shared.
//! - Each exclusive hold begins another *edition*: what was found out about the file with a
//!   reference of the same edition, and could change only under the lock held exclusively, is
//!   still so. [`seen::Seen`] keeps such things for each slot.
//!
//! Buffered reads and overwrites hold the lock shared as long as one thread at a time does, which
//! is cheapest. Those that find that another slot held it last count ([`LongLock::note_shared`]);
//! after [`MEETINGS`] of them the file has references, and buffered calls take them too wherever
//! the short way is open.

mod bits;
mod combine;
mod counted;
mod deferred;
mod plan;
mod refs;
mod seen;

#[cfg(all(test, feature = "model-shuttle"))]
mod models;
#[cfg(all(test, not(feature = "model-shuttle")))]
mod tests;

pub(crate) use combine::{Finished, Offered, Ticket};
pub(crate) use deferred::join;
pub use plan::Plan;
pub(crate) use refs::Refs;
pub(crate) use seen::Seen;

use nextent_num::must_fit;
use nextent_sync::atomic::{AtomicU32, Ordering};
use nextent_sync::{
    BiasedRwLock, BiasedRwLockReadGuard, BiasedRwLockWriteGuard, OnceLock, RankToken, current_slot,
    enter_rank,
};

use super::locks;
use crate::alloc::Window;

/// How often slots take turns at a lock held shared before its file gets references: what those
/// take, in memory above all, is worth it to a file that several cores use for long only.
const MEETINGS: u32 = if cfg!(feature = "model-shuttle") { 1 } else { 64 };

/// In place of a slot: buffered calls had references.
const SEVERAL: u32 = u32::MAX;

/// Who may change a file or a directory's entries.
pub(crate) struct LongLock {
    /// What is set aside for the file's growth belongs to whoever holds it exclusively.
    lock: BiasedRwLock<Window>,
    /// There from the first direct transfer on, or from when buffered ones have met often.
    refs: OnceLock<Box<Refs>>,
    /// The slot of the last buffered call that held the lock shared, and one, or [`SEVERAL`].
    /// Relaxed: a guess, stored by who finds another, on the line that the lock has moved already.
    last: AtomicU32,
    /// How often another was found, until there are references. Relaxed, some may get lost.
    met: AtomicU32,
}

/// A reference of a transfer: nobody holds the lock exclusively while it lives.
#[must_use = "the reference ends when this is dropped"]
pub(crate) struct Transfer<'i> {
    refs: &'i Refs,
    /// The edition that it is of.
    pub(crate) edition: u64,
    rank: Option<RankToken>,
}

/// What keeps exclusive holders out while a transfer is in flight that no call waits for; ended by
/// [`LongLock::end`], on any thread.
#[must_use = "it is to be ended"]
#[derive(Debug)]
pub(crate) enum Hold {
    /// A reference.
    Reference,
    /// Only [`counted`]: a transfer of a replacement, which goes on after its lock was let go.
    #[cfg(feature = "lab")]
    Counted,
}

impl LongLock {
    pub(super) fn new() -> Self {
        Self {
            lock: BiasedRwLock::new(&locks::INODE_RW, Window::new()),
            refs: OnceLock::new(),
            last: AtomicU32::new(0),
            met: AtomicU32::new(0),
        }
    }

    /// Waits for shared access.
    #[inline]
    #[track_caller]
    pub(crate) fn read(&self) -> BiasedRwLockReadGuard<'_, Window> {
        self.lock.read()
    }

    /// Waits for exclusive access, and for the transfers in flight.
    #[inline]
    #[track_caller]
    pub(crate) fn write(&self) -> BiasedRwLockWriteGuard<'_, Window> {
        let guard = self.lock.write();
        if let Some(refs) = self.refs.get() {
            refs.exclude();
        }
        guard
    }

    /// Shared access if it is to be had now.
    #[track_caller]
    pub(crate) fn try_read(&self) -> Option<BiasedRwLockReadGuard<'_, Window>> {
        self.lock.try_read()
    }

    /// Ends what a transfer in flight held.
    #[inline]
    pub(crate) fn end(&self, hold: Hold) {
        match hold {
            Hold::Reference => self.refs().leave(),
            #[cfg(feature = "lab")]
            Hold::Counted => self.refs().leave_counted(),
        }
    }

    /// Exclusive access if it is to be had now, without a transfer in flight.
    #[inline]
    #[track_caller]
    pub(crate) fn try_write(&self) -> Option<BiasedRwLockWriteGuard<'_, Window>> {
        let guard = self.lock.try_write()?;
        let excluded = self.refs.get().is_none_or(|refs| refs.try_exclude());
        excluded.then_some(guard)
    }

    /// Notes a conversion that had mostly nothing to do.
    pub(crate) fn note_idle(&self) {
        if let Some(refs) = self.refs.get() {
            refs.note_idle();
        }
    }

    /// What may have been put off: what direct transfers share, if there ever was such a thing.
    #[inline]
    pub(crate) fn deferring(&self) -> Option<&Refs> {
        self.refs.get().map(|refs| &**refs).filter(|refs| refs.ever_deferred())
    }

    /// What direct transfers share, made by the first of them.
    #[inline]
    pub(crate) fn refs(&self) -> &Refs {
        match self.refs.get() {
            Some(refs) => refs,
            None => self.refs.get_or_init(|| Box::new(Refs::new())),
        }
    }

    /// Takes a reference, waiting for whoever holds the lock exclusively.
    ///
    /// Takes `[inode.rw]` shared, for the time of the call if the short way is closed.
    #[inline]
    #[track_caller]
    pub(crate) fn transfer(&self) -> Transfer<'_> {
        let rank = enter_rank(&locks::INODE_RW);
        let refs = self.enter();
        Transfer { refs, edition: refs.edition(), rank: Some(rank) }
    }

    #[inline]
    fn enter(&self) -> &Refs {
        let refs = self.refs();
        if !refs.enter() {
            self.enter_long(refs);
        }
        refs
    }

    /// Whether another slot than the caller's held the lock shared last, or had a reference; if
    /// not, the lock is what a buffered call should take, and need not [note](Self::note_shared).
    #[inline]
    pub(crate) fn is_met(&self) -> bool {
        self.last.load(Ordering::Relaxed) != must_fit::<u32, _>(current_slot().index()) + 1
    }

    /// Takes a reference if the short way is open; who is told none takes the lock shared, and
    /// [notes](Self::note_shared) it.
    #[track_caller]
    pub(crate) fn short(&self) -> Option<Transfer<'_>> {
        let refs = self.refs.get().filter(|refs| refs.is_open())?;
        let rank = enter_rank(&locks::INODE_RW);
        if !refs.enter() {
            return None;
        }
        if self.last.load(Ordering::Relaxed) != SEVERAL {
            self.last.store(SEVERAL, Ordering::Relaxed);
        }
        Some(Transfer { refs, edition: refs.edition(), rank: Some(rank) })
    }

    /// Notes that the caller, whom another slot has met, reads or overwrites with the lock held
    /// shared.
    pub(crate) fn note_shared(&self, _held: &BiasedRwLockReadGuard<'_, Window>) {
        let slot = must_fit::<u32, _>(current_slot().index()) + 1;
        let last = self.last.load(Ordering::Relaxed);
        if last != slot {
            self.meet(last, slot);
        }
    }

    /// Another slot held it last; the caller holds it shared.
    #[cold]
    fn meet(&self, last: u32, slot: u32) {
        self.last.store(slot, Ordering::Relaxed);
        match self.refs.get() {
            _ if last == 0 => {}
            Some(refs) => refs.calm_down(),
            None => {
                let met = self.met.load(Ordering::Relaxed);
                self.met.store(met + 1, Ordering::Relaxed);
                if met >= MEETINGS {
                    self.refs().calm_down();
                }
            }
        }
    }

    /// Takes a reference if that is possible without waiting.
    #[inline]
    pub(crate) fn try_transfer(&self) -> Option<Transfer<'_>> {
        let refs = self.refs();
        if !refs.enter() {
            let _shared = self.lock.try_read()?;
            refs.enter_shared();
        }
        Some(Transfer { refs, edition: refs.edition(), rank: None })
    }

    #[cold]
    fn enter_long(&self, refs: &Refs) {
        // The token stands for it: the two are one place in the order.
        let _shared = self.lock.read();
        refs.enter_shared();
    }
}

impl Transfer<'_> {
    /// What the transfers of this file share.
    pub(crate) fn refs(&self) -> &Refs {
        self.refs
    }

    /// The reference without a borrow, for a transfer that outlasts the call.
    #[inline]
    pub(crate) fn detach(mut self) -> Hold {
        drop(self.rank.take());
        std::mem::forget(self);
        Hold::Reference
    }
}

impl Drop for Transfer<'_> {
    #[inline]
    fn drop(&mut self) {
        self.refs.leave();
    }
}
