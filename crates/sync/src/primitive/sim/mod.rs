//! The simulated back end: threads are coroutines of one real thread, each a core with a clock.
//!
//! Promise: who runs is always the thread whose clock is furthest behind (ties by number), looked
//! at whenever it meets another core on a cache line; each operation on a lock, an atomic or a
//! condition moves the caller's clock by what a model of cache lines says, and nothing else does.
//! The same program with the same machine gives the same clocks, up to where its memory lies.
//!
//! With [`explore::shuffle`] turns are by chance instead, which makes a model checker of it.
//!
//! - `chance`, `explore`: turns by chance, and runs of them
//! - `world`, `task`: the threads, their clocks, who runs next
//! - `waits`: who waits for what
//! - `between`, `stepping`: the code between two operations, and what counts its instructions
//! - `uses`: what a use of a line is, from the code before it on
//! - `lines`, `table`, `moves`, `windows`, `data`: who has which cache line, who asks for it, what
//!   an access costs
//! - `lock`, `condvar`, `atomic`, `thread`, `slots`, `time`: the names of a back end, over these
//!
//! Differences from the real one: `Arc`'s counts, allocation and plain data are not seen, but for
//! those of `Common`, the first lines of what a lock guards and what is declared by `reads` and
//! `writes`; outside of [`world::run`] nothing is charged and no thread can be started.

pub mod atomic;
pub(crate) mod between;
pub(crate) mod chance;
mod condvar;
pub(crate) mod data;

pub(crate) mod explore;
pub(crate) mod lines;
pub(crate) mod local;
mod lock;
mod moves;
#[path = "../model/once.rs"]
mod once;
mod slots;
pub(crate) mod stepping;
mod table;
mod task;
mod tasks;
#[cfg(test)]
mod tests;
mod time;
pub(crate) mod uses;
mod waits;
mod windows;
pub(crate) mod world;

pub(crate) use condvar::Condvar;
#[cfg(debug_assertions)]
pub(crate) use local::local as thread_local;
pub(crate) use lock::{
    KindMutex, KindMutexGuard, KindRwLock, KindRwLockReadGuard, KindRwLockWriteGuard, Mutex,
    MutexGuard, OwnMutex, OwnMutexGuard, OwnRwLock, OwnRwLockReadGuard, OwnRwLockWriteGuard,
    RwLock, RwLockReadGuard, RwLockWriteGuard, kind_mutex, kind_rwlock,
};
pub(crate) use slots::{SLOTS, slot_and_owner, slot_of_caller, slots_used};
pub(crate) use time::{coarse_unix_time, unix_time};

// Named by the crate's public API.
pub use once::OnceLock;
pub use time::Instant;

/// Hints to a simulated processor.
pub mod hint {
    pub use std::hint::black_box;

    /// Lets the others catch up.
    pub fn spin_loop() {
        super::tasks::spin_loop();
    }
}

/// Simulated threads.
pub mod thread {
    pub use super::tasks::{
        Builder, JoinHandle, Scope, ScopedJoinHandle, Thread, current, scope, spawn, yield_now,
    };
    pub use super::time::sleep;
    pub use std::thread::panicking;

    /// As many cores as the machine has.
    ///
    /// # Errors
    /// Never.
    pub fn available_parallelism() -> std::io::Result<std::num::NonZeroUsize> {
        let cores = std::num::NonZeroUsize::new(super::available_cores());
        cores.ok_or(std::io::ErrorKind::Unsupported.into())
    }
}

/// The frequent side's fence is a matter for the compiler.
#[inline]
pub(crate) fn light_barrier() {}

/// The seldom side's fence interrupts every core.
pub(crate) fn heavy_barrier() {
    world::interrupt_all();
}

/// The machine's cores.
pub(crate) fn available_cores() -> usize {
    world::cores()
}

/// Runs must not depend on the machine's memory.
pub(crate) fn available_memory() -> Option<u64> {
    None
}

pub(crate) fn release_memory() {}

pub(crate) fn memory_pressure() -> Option<std::fs::File> {
    None
}

/// Runs `work` on the caller and on `others` new threads until all are done.
pub(crate) fn on_workers(others: usize, work: impl Fn() + Sync) {
    // A commit's helpers run on cores that have nothing else to do; outside there are none.
    if !world::inside() {
        return work();
    }
    thread::scope(|scope| {
        for _ in 0..others.min(8) {
            scope.spawn(&work);
        }
        work();
    });
}
