//! The clock of the caller's core.

use super::task::Wait;
use super::world;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// The wall clock when a simulation starts, in seconds since 1970.
const START: u64 = 1_700_000_000;

/// A time in picoseconds, as far as it can be told.
pub(super) fn picos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1_000).min(u64::MAX / 4)
}

fn clock() -> Duration {
    Duration::from_nanos(world::clock() / 1_000)
}

/// Lets `time` pass on the caller's core.
pub fn sleep(time: Duration) {
    if world::inside() {
        world::block(Wait::Nothing, Some(world::clock().saturating_add(picos(time))));
    }
}

/// Time since 1970.
pub(crate) fn unix_time() -> Duration {
    Duration::from_secs(START) + clock()
}

pub(crate) fn coarse_unix_time() -> Duration {
    // A tick is 4 ms.
    let now = unix_time();
    Duration::new(now.as_secs(), now.subsec_nanos() / 4_000_000 * 4_000_000)
}

/// A point on a simulation's clock, as [`std::time::Instant`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// The time now on the caller's core.
    #[must_use]
    pub fn now() -> Self {
        Self(clock())
    }

    /// Time from then until now.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Self::now().duration_since(*self)
    }

    /// Time from `earlier` until this point, zero if it is not earlier.
    #[must_use]
    pub fn duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// As [`duration_since`](Self::duration_since).
    #[must_use]
    pub fn saturating_duration_since(&self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }

    /// Time from `earlier` until this point, `None` if it is not earlier.
    #[must_use]
    pub fn checked_duration_since(&self, earlier: Self) -> Option<Duration> {
        self.0.checked_sub(earlier.0)
    }

    /// This point and `time`, if it can be told.
    #[must_use]
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
