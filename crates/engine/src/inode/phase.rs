//! The phase of a volume: writable, closing (only deferred conversions may change it), or
//! read-only.
//!
//! A thread reads the phase before it starts a handle, and the phase may change in between. That is
//! harmless: a handle that the journal admits is committed, at the latest by the last commit of a
//! close, and the journal itself refuses later ones. The phase makes operations fail early.
//!
//! The close enters `Closing` before it completes the deferred conversions for the last time. A
//! writer defers a conversion and then reads the phase. Both execute a barrier in between, so
//! either the close finds the deferred conversion or the writer sees `Closing` and completes it.

use nextent_sync::asymmetric_slow;
use nextent_sync::atomic::{AtomicU8, Ordering};

const WRITABLE: u8 = 0;
const CLOSING: u8 = 1;
const READ_ONLY: u8 = 2;

/// The phase of a volume; it only rises. Relaxed: the module's header says what orders it.
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
        self.0.load(Ordering::Relaxed) != READ_ONLY
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
}
