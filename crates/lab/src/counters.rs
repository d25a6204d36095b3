//! Three counts that two cores change at the same time, written once for real and simulated cores:
//! from what that costs on real ones follows how long a line is on its way between simulated ones.

use nextent_sync::CachePadded;
use nextent_sync::atomic::{AtomicU64, Ordering};

/// Changes in a turn.
#[cfg_attr(feature = "simulated", allow(dead_code))] // asked by the other copy
pub(crate) const CHANGES: u64 = 6;

/// The counts, on lines of their own. Nothing is ordered by them.
#[derive(Default)]
pub(crate) struct Counters([CachePadded<AtomicU64>; 3]);

impl Counters {
    /// Each up and down again, as an operation does with what all operations count; `code` is what
    /// it computes.
    pub(crate) fn turn(&self, code: impl Fn()) {
        let [users, credits, inside] = &self.0;
        for count in [users, credits, inside] {
            count.fetch_add(1, Ordering::SeqCst);
        }
        code();
        for count in [users, credits, inside] {
            count.fetch_sub(1, Ordering::SeqCst);
        }
        code();
    }
}
