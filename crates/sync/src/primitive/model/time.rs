//! A model's clock: it passes when somebody asks for it, sleeps or times out.

use super::base;
use std::ops::{Add, AddAssign, Sub};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What asking for the time costs, in nanoseconds.
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

/// Lets others run, then lets `time` pass.
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

/// A point on the model's clock, as [`std::time::Instant`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// The time now; it passes by being asked for.
    pub fn now() -> Self {
        Self(advance(TICK))
    }

    /// Time from then until now.
    pub fn elapsed(&self) -> Duration {
        Self::now().duration_since(*self)
    }

    /// Time from `earlier` until this point, zero if it is not earlier.
    pub fn duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// As [`duration_since`](Self::duration_since).
    pub fn saturating_duration_since(&self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }

    /// Time from `earlier` until this point, `None` if it is not earlier.
    pub fn checked_duration_since(&self, earlier: Self) -> Option<Duration> {
        self.0.checked_sub(earlier.0)
    }

    /// This point and `time`, if it can be told.
    pub fn checked_add(&self, time: Duration) -> Option<Self> {
        self.0.checked_add(time).map(Self)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, time: Duration) -> Self {
        Self(self.0 + time)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, time: Duration) {
        self.0 += time;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(time))
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}
