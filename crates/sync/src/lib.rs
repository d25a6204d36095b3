//! The only door to locks, atomics, threads, time and per-core slots.
//!
//! Everything above imports these names instead of `std::sync`, so that one
//! switch of back end runs the same code for real or under a model checker.

mod class;
mod lock;
mod slot;

pub use class::LockClass;
pub use lock::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use slot::{PerCore, SlotId, current_slot};

pub use crossbeam_utils::CachePadded;
pub use std::sync::atomic;
pub use std::sync::{Arc, OnceLock, Weak};
pub use std::thread;
pub use std::time::{Duration, Instant};
