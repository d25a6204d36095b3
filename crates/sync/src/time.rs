//! Clocks, and waiting for a time.

use crate::primitive;
use std::time::Duration;

pub use primitive::Instant;

/// The time now, on a clock that never goes back.
pub fn now() -> Instant {
    Instant::now()
}

/// Time since 1970 by the wall clock, for time stamps on disk.
pub fn unix_time() -> Duration {
    primitive::unix_time()
}

/// Time since 1970 as of the last tick of the system's clock, at most a few milliseconds ago, as
/// Linux stamps files. It reads no hardware counter.
pub fn coarse_unix_time() -> Duration {
    primitive::coarse_unix_time()
}

/// Lets at least `time` pass.
pub fn sleep(time: Duration) {
    primitive::thread::sleep(time);
}
