//! Stops handles.

use super::{AWAITED, RwLockGate};
use nextent_sync::atomic::Ordering;

impl RwLockGate {
    pub(super) fn stop_handle(&self, unused: i64) -> bool {
        self.counts.outstanding.fetch_sub(unused, Ordering::Relaxed);
        let before = self.counts.updates.fetch_sub(1, Ordering::Release);
        debug_assert!(before & !AWAITED > 0, "a handle that stops has started");
        before == AWAITED + 1
    }
}
