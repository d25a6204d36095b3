#![doc = include_str!("../README.md")]
//!
//! # Design
//!
//! The only door to locks, atomics, threads, time and per-core slots.
//!
//! Everything above imports these names instead of `std::sync`, so that one
//! switch of back end runs the same code for real or under a model checker:
//!
//! - **real**, the default: parking_lot and the standard library, with nothing
//!   added in release builds;
//! - **shuttle** (feature `model-shuttle`): whole protocols under a scheduler
//!   that tries many interleavings; tests run inside `shuttle::check_random`;
//! - **loom** (feature `model-loom`): the few small patterns that rely on weak
//!   memory, all executions; tests run inside `loom::model`;
//! - **external** (feature `external-backend`, which the manifest of another package declares):
//!   the crate `backend`, see `primitive::external`.
//!
//! The modules of the private module `primitive` are the back ends and the only
//! place that names what they are made of.
//!
//! No `static` holds a lock or an atomic of this crate: under a model they
//! belong to one execution. A lock's class is a `static`; the lock is not.
//!
//! Locks are ranked: see [`LockClass`] and `docs/LOCKS.md`.

mod barrier;
mod bytes;
mod class;
mod common;
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

pub use barrier::{heavy_barrier, light_barrier};
pub use bytes::SharedBytes;
pub use class::LockClass;
pub use common::Common;
pub use condvar::Condvar;
pub use injection::{SMALL_LIMITS, injected};
pub use kind::LockKind;
pub use maps::{HashMap, HashSet};
pub use memory::{available_memory, memory_pressure, release_memory};
pub use mutex::{KindMutex, KindMutexGuard, Mutex, MutexGuard, OwnMutex, OwnMutexGuard};
pub use parallel::{available_cores, parallel_for, parallel_map, try_parallel_for};
#[cfg(not(feature = "lockstat"))]
pub use primitive::atomic;
pub use primitive::{OnceLock, hint, thread};
pub use rank::{RankToken, enter_rank};
pub use rwlock::{
    KindRwLock, KindRwLockReadGuard, KindRwLockWriteGuard, OwnRwLock, OwnRwLockReadGuard,
    OwnRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
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
