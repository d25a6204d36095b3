//! In-flight I/O of replaced direct writes, counted in one word.
//!
//! A replacement begins a transfer under the inode's lock and releases the lock while the transfer
//! is in flight. A build without the feature `lab` has no such transfers, and [`WordCount`] has no
//! size.

#[cfg(feature = "lab")]
use super::{InFlightCount, InodeRwLock, SharedIo};
#[cfg(feature = "lab")]
use crate::alloc::Window;
#[cfg(feature = "lab")]
use nextent_sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "lab")]
use nextent_sync::{BiasedRwLockWriteGuard, CachePadded, asymmetric_fast};

/// The count. SeqCst, as is the flag of the waiting exclusive holder.
#[derive(Default)]
pub(super) struct WordCount(#[cfg(feature = "lab")] CachePadded<AtomicU64>);

#[cfg(not(feature = "lab"))]
impl WordCount {
    pub(super) fn is_none(&self) -> bool {
        true
    }
}

#[cfg(feature = "lab")]
impl WordCount {
    /// Whether no such transfer is in flight.
    pub(super) fn is_none(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }
}

#[cfg(feature = "lab")]
impl SharedIo {
    /// Counts the beginning of a transfer. The caller holds the lock.
    fn begin_in_word(&self) {
        self.word_count.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts the end of a transfer, on any thread.
    pub(super) fn end_in_word(&self) {
        self.word_count.0.fetch_sub(1, Ordering::SeqCst);
        asymmetric_fast();
        if self.words.holder_waits.load(Ordering::SeqCst) {
            self.wake();
        }
    }
}

#[cfg(feature = "lab")]
impl InodeRwLock {
    /// Waits for exclusive access, but not for transfers in flight.
    #[track_caller]
    pub(crate) fn write_undrained(&self) -> BiasedRwLockWriteGuard<'_, Window> {
        self.lock.write()
    }

    /// Like [`write_undrained`](Self::write_undrained), without waiting.
    #[track_caller]
    pub(crate) fn try_write_undrained(&self) -> Option<BiasedRwLockWriteGuard<'_, Window>> {
        self.lock.try_write()
    }

    /// Counts a transfer that the caller has begun under the lock.
    pub(crate) fn count_in_word(&self) -> InFlightCount {
        self.io().begin_in_word();
        InFlightCount::Word
    }

    /// Whether an exclusive holder waits for transfers in flight.
    pub(crate) fn has_exclusive_waiter(&self) -> bool {
        self.io.get().is_some_and(|io| io.words.holder_waits.load(Ordering::Relaxed))
    }
}
