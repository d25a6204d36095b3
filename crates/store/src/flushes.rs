//! Flushes of the device, numbered, so that nobody flushes for what is stable.
//!
//! A flush gets its number before it begins. Whoever has written data notes the number of the
//! next flush: once that one or a later one has succeeded, the data is stable. A flush that
//! failed ends them all: what was written before may be lost, and no later success says otherwise.
//!
//! Why a write is covered by the flush its writer notes: it writes, passes a fence and loads the
//! number of the newest flush, `n`; flush `n + 1` stores its number, passes a fence and begins.
//! One of the two sees the other: the writer did not see `n + 1`, so flush `n + 1` sees the
//! write. These are plain fences: a write is long, and a heavy barrier interrupts every core at
//! every flush.

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
    /// Newest flush that succeeded. Release after the flush, Acquire by those who rely on it.
    done: AtomicU64,
    /// Why one failed.
    failed: OnceLock<Arc<str>>,
    /// Held by the one who flushes, for all who wait. `[store.flush]`
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

    /// The flush that will make stable what the caller has written.
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

    /// Flushes: what was written before this call is stable when it returns.
    pub(crate) fn flush(&self) -> Result<()> {
        self.reach(self.next())
    }

    /// Sees to it that flush `number` or a later one has succeeded. One flush runs at a time, and
    /// callers share it: a failure of one could else be taken for a success of the other.
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
