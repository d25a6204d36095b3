//! The phase of a volume, which says whether changes are refused.
//!
//! | phase | operations | deferred conversions | left for |
//! |---|---|---|---|
//! | `Writable` | allowed | allowed | `Closing`, `Damaged` |
//! | `Closing` | refused | allowed | `ReadOnly`; `Writable` if the change is undone; `Damaged` |
//! | `ReadOnly` | refused | refused | `Writable` if the volume is made writable; `Damaged` |
//! | `Damaged` | refused | refused | - |
//!
//! A thread reads the phase before it starts a handle, and the phase may change in between. That is
//! harmless: a handle that the journal admits is committed, at the latest by the last commit of a
//! close, and the journal itself refuses later ones. The phase makes operations fail early.
//!
//! The close enters `Closing` before it completes the deferred conversions for the last time. A
//! writer defers a conversion and then reads the phase. Both execute a barrier in between, so
//! either the close finds the deferred conversion or the writer sees `Closing` and completes it.
//!
//! Overwrites of blocks that hold data need no handle. So a writer reads the phase again once it
//! holds the file's lock or is counted in flight. A thread that has entered `Closing` and then held
//! the lock exclusively knows that no write to the file is in flight and that none begins.

use nextent_sync::asymmetric_slow;
use nextent_sync::atomic::{AtomicU8, Ordering};

const WRITABLE: u8 = 0;
const CLOSING: u8 = 1;
const READ_ONLY: u8 = 2;
const DAMAGED: u8 = 3;

/// The phase of a volume. Relaxed: the module's header says what orders it.
pub(super) struct Phase(AtomicU8);

impl Phase {
    pub(super) fn new(read_only: bool) -> Self {
        Self(AtomicU8::new(if read_only { READ_ONLY } else { WRITABLE }))
    }

    #[inline]
    pub(super) fn is_writable(&self) -> bool {
        self.0.load(Ordering::Relaxed) == WRITABLE
    }

    /// Whether deferred conversions may change the volume. They end operations that have begun.
    #[inline]
    pub(super) fn may_convert(&self) -> bool {
        self.0.load(Ordering::Relaxed) < READ_ONLY
    }

    /// Refuses operations from now on. When this returns, every writer that has not seen the new
    /// phase has published its deferred conversion.
    pub(super) fn begin_closing(&self) {
        self.0.fetch_max(CLOSING, Ordering::Relaxed);
        asymmetric_slow();
    }

    /// Refuses all changes from now on.
    pub(super) fn set_read_only(&self) {
        self.0.fetch_max(READ_ONLY, Ordering::Relaxed);
    }

    /// Refuses all changes for good.
    pub(super) fn set_damaged(&self) {
        self.0.fetch_max(DAMAGED, Ordering::Relaxed);
    }

    /// Whether changes are refused for good.
    pub(super) fn is_damaged(&self) -> bool {
        self.0.load(Ordering::Relaxed) == DAMAGED
    }

    /// Allows all changes, unless they are refused for good. Only the thread that may close the
    /// volume calls this.
    pub(super) fn set_writable(&self) {
        let writable = |phase| (phase != DAMAGED).then_some(WRITABLE);
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, writable);
    }
}
