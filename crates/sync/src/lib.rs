#![doc = include_str!("../README.md")]
//!
//! # Design
//!
//! Locks, atomics, threads, time and per-thread slots, over exchangeable back ends.
//!
//! The crates above import these names instead of `std::sync`, so that the same code runs for real
//! or under a model checker:
//!
//! - **real**, the default: parking_lot and the standard library, with nothing
//!   added in release builds;
//! - **shuttle** (feature `model-shuttle`): whole protocols under a scheduler
//!   that tries many interleavings; tests run inside `shuttle::check_random`;
//! - **loom** (feature `model-loom`): all executions of the few small patterns that rely on weak
//!   memory; tests run inside `loom::model`;
//! - **external** (feature `external-backend`, which the manifest of another package declares):
//!   the crate `backend`, see `primitive::external`.
//!
//! The back ends are the modules of the private module `primitive`. Only they name the crates that
//! they are made of.
//!
//! No `static` may hold a lock or an atomic of this crate: under a model they belong to one
//! execution. A lock's class is a `static`; the lock is not.
//!
//! Locks are ranked: see [`LockClass`] and `docs/LOCKS.md`.

mod barrier;
mod bytes;
mod class;
mod condvar;
mod injection;
mod kind;
mod maps;
mod memory;
mod mutex;
mod parallel;
mod primitive;
mod rank;
mod rwlock;
mod slot;
pub mod stats;
mod time;
mod traffic;
mod words;

pub use barrier::{asymmetric_fast, asymmetric_slow};
pub use bytes::SharedBytes;
pub use class::LockClass;
pub use condvar::Condvar;
pub use injection::{SMALL_LIMITS, injected};
pub use kind::LockKind;
pub use maps::{HashMap, HashSet};
pub use memory::{available_memory, memory_pressure, release_memory};
pub use mutex::{BiasedMutex, BiasedMutexGuard, KindMutex, KindMutexGuard, Mutex, MutexGuard};
pub use parallel::{available_cores, parallel_for, parallel_map, try_parallel_for};
#[cfg(not(feature = "lockstat"))]
pub use primitive::atomic;
pub use primitive::{OnceLock, hint, thread};
pub use rank::{RankToken, enter_rank};
pub use rwlock::{
    BiasedRwLock, BiasedRwLockReadGuard, BiasedRwLockWriteGuard, KindRwLock, KindRwLockReadGuard,
    KindRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
pub use slot::{PerCore, SLOTS, SlotId, current_slot, current_slot_owned};
#[cfg(feature = "lockstat")]
pub use stats::atomic;
pub use time::{Instant, coarse_unix_time, now, sleep, unix_time};
pub use traffic::{at_once, computes, leads_on, reads, searches, sums, writes};
pub use words::{PagedWords, Words};

pub use crossbeam_utils::CachePadded;
/// The model checker, for tests of the crates above.
#[cfg(feature = "model-shuttle")]
pub use shuttle;
pub use std::sync::{Arc, Weak};
pub use std::time::Duration;
