//! A model's clock: it advances when a thread reads it, sleeps or times out.

use super::base;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Nanoseconds by which a read advances the clock.
const TICK: u64 = 1_000;

/// The wall clock when an execution starts, in seconds since 1970.
const START: u64 = 1_700_000_000;

base::lazy_static! {
    /// Nanoseconds since the execution began; no scheduling point.
    static ref CLOCK: AtomicU64 = AtomicU64::new(0);
}

fn advance(by: u64) -> Duration {
    Duration::from_nanos(CLOCK.fetch_add(by, Ordering::Relaxed).saturating_add(by))
}

/// The clock, which each read advances.
pub(in crate::primitive) fn clock() -> Duration {
    advance(TICK)
}

/// Lets other threads run, then advances the clock by `time`.
pub fn sleep(time: Duration) {
    base::thread::yield_now();
    advance(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4));
}

/// Time since 1970.
pub(crate) fn unix_time() -> Duration {
    Duration::from_secs(START) + advance(TICK)
}

pub(crate) fn coarse_unix_time() -> Duration {
    unix_time()
}
