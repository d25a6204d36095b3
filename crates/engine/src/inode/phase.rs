//! How far a volume may be changed: for all, by the last conversions only, or not at all.
//!
//! A thread loads the phase before it starts a handle, and the phase may move on in between. That
//! is sound: a handle that the journal admits is committed, also by the last commit of a close,
//! and one that comes later is refused by the journal itself. The phase spares operations the work
//! and tells them early.
//!
//! The close moves to `Closing` before it completes the deferred conversions for the last time. A
//! writer defers a conversion and looks at the phase afterwards. Both pass a barrier in between, so
//! either the close finds the deferred conversion or the writer sees `Closing` and completes it.

use nextent_sync::asymmetric_slow;
use nextent_sync::atomic::{AtomicU8, Ordering};

const WRITABLE: u8 = 0;
const CLOSING: u8 = 1;
const READ_ONLY: u8 = 2;

/// The phase of a volume; it only rises. Relaxed: see the module's header for what orders it.
pub(super) struct Phase(AtomicU8);

impl Phase {
    pub(super) fn new(read_only: bool) -> Self {
        Self(AtomicU8::new(if read_only { READ_ONLY } else { WRITABLE }))
    }

    /// Whether operations may change the volume.
    #[inline]
    pub(super) fn is_writable(&self) -> bool {
        self.0.load(Ordering::Relaxed) == WRITABLE
    }

    /// Whether deferred conversions, which end what operations have begun, may change it.
    #[inline]
    pub(super) fn may_convert(&self) -> bool {
        self.0.load(Ordering::Relaxed) != READ_ONLY
    }

    /// Refuses operations from now on. A writer that has not seen this has made its deferred
    /// conversion known when this returns.
    pub(super) fn begin_closing(&self) {
        self.0.fetch_max(CLOSING, Ordering::Relaxed);
        asymmetric_slow();
    }

    /// Refuses all changes from now on.
    pub(super) fn set_read_only(&self) {
        self.0.fetch_max(READ_ONLY, Ordering::Relaxed);
    }
}
