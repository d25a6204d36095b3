//! Transfers in flight that hold no reference, counted in one word: those of a replacement of the
//! direct writes, which begins them under the lock and lets the lock go.
//!
//! A build without the feature `lab` has none, and [`Counted`] has no size there.

#[cfg(feature = "lab")]
use super::{Hold, LongLock, Refs};
#[cfg(feature = "lab")]
use crate::alloc::Window;
#[cfg(feature = "lab")]
use nextent_sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "lab")]
use nextent_sync::{BiasedRwLockWriteGuard, CachePadded, asymmetric_fast};

/// The count. SeqCst, with the flag of an exclusive holder that waits.
#[derive(Default)]
pub(super) struct Counted(#[cfg(feature = "lab")] CachePadded<AtomicU64>);

#[cfg(not(feature = "lab"))]
impl Counted {
    pub(super) fn is_none(&self) -> bool {
        true
    }
}

#[cfg(feature = "lab")]
impl Counted {
    /// Whether no such transfer is in flight.
    pub(super) fn is_none(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }
}

#[cfg(feature = "lab")]
impl Refs {
    /// Counts a transfer in; the caller holds the lock.
    fn enter_counted(&self) {
        self.counted.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a transfer out, on any thread.
    pub(super) fn leave_counted(&self) {
        self.counted.0.fetch_sub(1, Ordering::SeqCst);
        asymmetric_fast();
        if self.state.waiting.load(Ordering::SeqCst) {
            self.wake();
        }
    }
}

#[cfg(feature = "lab")]
impl LongLock {
    /// Waits for exclusive access, but not for the transfers in flight.
    #[track_caller]
    pub(crate) fn write_beside_transfers(&self) -> BiasedRwLockWriteGuard<'_, Window> {
        self.lock.write()
    }

    /// The same without waiting.
    #[track_caller]
    pub(crate) fn try_write_beside_transfers(&self) -> Option<BiasedRwLockWriteGuard<'_, Window>> {
        self.lock.try_write()
    }

    /// Counts a transfer that the caller has begun; the caller holds the lock.
    pub(crate) fn count(&self) -> Hold {
        self.refs().enter_counted();
        Hold::Counted
    }

    /// Whether an exclusive holder waits for transfers in flight.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.refs.get().is_some_and(|refs| refs.state.waiting.load(Ordering::Relaxed))
    }
}
