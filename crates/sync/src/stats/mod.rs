//! Lock statistics in the manner of Linux's lock_stat.
//!
//! Per class: acquisitions, contentions, time waited and held, the call sites
//! that held a lock while others waited for it, and *shared stores*: stores,
//! read-modify-writes, locks and unlocks of an object that another slot stored
//! in last, which is what moves a cache line. Atomics have no class of their
//! own and are one row, told apart by call site.
//!
//! They need the cargo feature `lockstat` and [`enable`]. Without the feature
//! locks and atomics are as if this module were not there; with it and not
//! enabled they cost one branch. Counts are kept per slot, so that counting
//! makes no two cores meet. `Arc`'s counts and parked waiters inside a condition
//! are not seen.

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

/// How many call sites a class's statistics name at most.
pub const SITES: usize = 8;

/// Begins to count, or goes on counting.
pub fn enable() {
    meter::switch(true);
}

/// Stops counting; the counts stay. A lock held meanwhile is left out.
pub fn disable() {
    meter::switch(false);
}

/// Sets all counts to zero. What others count at the same time may be lost.
pub fn reset() {
    meter::reset();
}

/// The counts of every class that has any: the most contended first, then the
/// most shared, then the most used. Empty where statistics are not available.
pub fn snapshot() -> Vec<ClassStats> {
    meter::snapshot()
}

/// What was counted for one class.
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
    /// Stores, read-modify-writes, locks and unlocks of an object that another
    /// slot stored in last.
    pub shared_stores: u64,
    /// Time waited, of all acquisitions.
    pub wait_total: Duration,
    /// Time waited, of the acquisition that waited longest.
    pub wait_max: Duration,
    /// Time held, of all acquisitions.
    pub hold_total: Duration,
    /// Time held, of the acquisition held longest.
    pub hold_max: Duration,
    /// Where those took the lock for whom others had to wait, worst first.
    pub holders: Vec<CallSite>,
    /// Where the shared stores were made, most first.
    pub sharers: Vec<CallSite>,
}

/// A place in the code and what was counted for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSite {
    /// The call of the lock or atomic.
    pub at: &'static Location<'static>,
    /// How often.
    pub count: u64,
    /// How long others waited; zero for shared stores.
    pub wait: Duration,
}

#[cfg(all(test, not(any(feature = "model-shuttle", feature = "model-loom"))))]
mod tests;
