//! The only door to locks, atomics, threads, time and per-core slots.
//!
//! Everything above imports these names instead of `std::sync`, so that one
//! switch of back end runs the same code for real or under a model checker.

mod class;
mod condvar;
mod mutex;
mod parallel;
mod primitive;
mod rank;
mod rwlock;
mod slot;

pub use class::LockClass;
pub use condvar::Condvar;
pub use mutex::{Mutex, MutexGuard};
pub use parallel::{available_cores, parallel_for, parallel_map, try_parallel_for};
pub use rank::{RankToken, enter_rank};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use slot::{PerCore, SLOTS, SlotId, current_slot};

pub use crossbeam_utils::CachePadded;
pub use std::sync::atomic;
pub use std::sync::{Arc, OnceLock, Weak};
pub use std::thread;
pub use std::time::{Duration, Instant};
