//! Lock statistics in the manner of Linux's lock_stat.
//!
//! Per class: acquisitions, contentions, wait and hold times, the call sites that held a lock while
//! other threads waited, and *shared stores*: stores, read-modify-writes, locks and unlocks of an
//! object that another slot stored to last. Each shared store moves a cache line. Atomics have no
//! class: they are one row, distinguished by call site.
//!
//! They need the cargo feature `lockstat` and [`enable`]. Without the feature locks and atomics
//! contain no code of this module; with the feature, and not enabled, they cost one branch. Counts
//! are per slot, so counting adds no contention. Counts of `Arc` and waiters inside a condition are
//! not counted.

#[cfg(feature = "lockstat")]
#[doc(hidden)]
pub mod atomic;
#[cfg(feature = "lockstat")]
mod count;
#[cfg(feature = "lockstat")]
mod meter;
#[cfg(not(feature = "lockstat"))]
#[path = "off.rs"]
mod meter;
mod table;

use std::panic::Location;
use std::time::Duration;

pub(crate) use meter::{Hold, Meter};
pub use table::Table;

/// Whether this build can count at all.
pub const AVAILABLE: bool = cfg!(feature = "lockstat");

/// The most call sites that a class's statistics name.
pub const SITES: usize = 8;

/// Starts or continues counting.
pub fn enable() {
    meter::switch(true);
}

/// Stops counting; the counts stay. A lock that is held now is not counted.
pub fn disable() {
    meter::switch(false);
}

/// Sets all counts to zero. Concurrent counts of other threads may be lost.
pub fn reset() {
    meter::reset();
}

/// The counts of every class that has any: the most contended first, then the most shared, then the
/// most used. Empty where statistics are not available.
pub fn snapshot() -> Vec<ClassStats> {
    meter::snapshot()
}

/// The counts of one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassStats {
    /// The class's name.
    pub name: &'static str,
    /// The class's rank.
    pub rank: u16,
    /// Locks taken, shared or not; for atomics, stores and read-modify-writes.
    pub acquisitions: u64,
    /// Acquisitions that had to wait, and attempts that failed.
    pub contentions: u64,
    /// Stores, read-modify-writes, locks and unlocks of an object that another slot stored to last.
    pub shared_stores: u64,
    /// Time waited, of all acquisitions.
    pub wait_total: Duration,
    /// Time waited, of the acquisition that waited longest.
    pub wait_max: Duration,
    /// Time held, of all acquisitions.
    pub hold_total: Duration,
    /// Time held, of the acquisition held longest.
    pub hold_max: Duration,
    /// Where holders took the lock that other threads waited for, worst first.
    pub holders: Vec<CallSite>,
    /// Call sites of shared stores, most first.
    pub sharers: Vec<CallSite>,
}

/// A place in the code, with its counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSite {
    /// The call of the lock or atomic.
    pub at: &'static Location<'static>,
    /// How often.
    pub count: u64,
    /// How long other threads waited; zero for shared stores.
    pub wait: Duration,
}

#[cfg(all(test, not(any(feature = "model-shuttle", feature = "model-loom"))))]
mod tests;
