//! Numbered flushes of the device, shared by the threads that need one.
//!
//! A flush gets its number before it begins. A writer notes the number of the next flush after it
//! has written: once that flush or a later one has succeeded, the data is stable. A failed flush
//! ends all flushing: earlier writes may be lost, and a later success would not prove otherwise.
//!
//! Why the noted flush covers the write:
//!
//! | writer | flush `n + 1` |
//! |---|---|
//! | writes | stores its number `n + 1` |
//! | passes a full fence | passes a full fence |
//! | loads the newest number, `n` | flushes the device |
//!
//! One of the two sees the other. The writer did not see `n + 1`, so flush `n + 1` covers the
//! write. Both sides are full fences: a write is long, and membarrier(2) would interrupt every core
//! at every flush.
//!
//! Lock rank: `[store.flush]` 640, held across a flush.

use crate::{Error, Result, locks};
use nextent_device::BlockDevice;
use nextent_ondisk::BlockNo;
use nextent_sync::atomic::{AtomicU64, Ordering, fence};
use nextent_sync::{Arc, CachePadded, Mutex, OnceLock};

/// The numbers of a device's flushes.
pub(crate) struct Flushes {
    device: Arc<dyn BlockDevice>,
    /// Newest flush that began. Stored under `turn`, before a fence and the flush; loaded after a
    /// write and a fence.
    begun: CachePadded<AtomicU64>,
    /// Newest flush that succeeded. Release after the flush, Acquire by threads that rely on it.
    done: AtomicU64,
    /// The error of the flush that failed.
    failed: OnceLock<Arc<str>>,
    /// Held by the thread that flushes. `[store.flush]`
    turn: Mutex<()>,
}

impl Flushes {
    pub(crate) fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self {
            device,
            begun: CachePadded::new(AtomicU64::new(0)),
            done: AtomicU64::new(0),
            failed: OnceLock::new(),
            turn: Mutex::new(&locks::FLUSH, ()),
        }
    }

    /// The number of the flush that will make the caller's earlier writes stable.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.begun.load(Ordering::Relaxed) + 1
    }

    /// Whether flush `number` or a later one has succeeded.
    #[inline]
    pub(crate) fn is_done(&self, number: u64) -> bool {
        self.done.load(Ordering::Acquire) >= number
    }

    /// Flushes: all earlier writes are stable when this returns.
    pub(crate) fn flush(&self) -> Result<()> {
        self.reach(self.next())
    }

    /// Waits until flush `number` or a later one has succeeded, and flushes if need be. One flush
    /// runs at a time: of two concurrent ones, one could succeed and hide the failure of the other.
    pub(crate) fn reach(&self, number: u64) -> Result<()> {
        if self.is_done(number) {
            return Ok(());
        }
        let _turn = self.turn.lock();
        if self.is_done(number) {
            return Ok(());
        }
        if let Some(cause) = self.failed.get() {
            let what = format!("an earlier flush failed: {cause}");
            return Err(Error::io("flush", BlockNo(0), std::io::Error::other(what)));
        }
        let number = self.begun.load(Ordering::Relaxed) + 1;
        self.begun.store(number, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if let Err(error) = self.device.flush() {
            self.failed.get_or_init(|| Arc::from(error.to_string()));
            return Err(Error::io("flush", BlockNo(0), error));
        }
        self.done.store(number, Ordering::Release);
        Ok(())
    }
}
