//! Simulated cores: a back end for `nextent-sync` in which threads are cores with virtual clocks.
//!
//! The laboratory compiles the engine over it (`lab/copies/simulated`). A run starts with [`run`];
//! nothing is charged until the threads to be measured have met in [`gather`]. From then on each
//! operation on a lock, an atomic or a condition variable moves the clock of its core by what the
//! cost model says (`lab/docs/MODEL.md`). Under a random schedule ([`shuffle`]) nothing is charged,
//! and the scheduler is a model checker.
//!
//! - `simulation`, `task`: threads, clocks, which thread runs next
//! - `random`, `explore`: random schedules
//! - `machine`, `coherence`, `requests`, `table`: the cost of cache lines
//! - `access`: what one operation does
//! - `lock`, `waiters`, `condvar`, `atomic`, `thread`, `local`: the interface of a back end
//! - `report`: what was charged
//!
//! Outside of a run nothing is charged and no thread can be started.

mod access;
pub mod atomic;
mod coherence;
mod condvar;
mod explore;
mod local;
mod lock;
mod machine;
mod random;
mod report;
mod requests;
mod simulation;
mod table;
mod task;
#[cfg(test)]
mod tests;
pub mod thread;
mod waiters;

pub use condvar::Condvar;
pub use explore::{explore, is_injected, shuffle, steps, trace};
pub use local::Local;
pub use lock::{
    BiasedMutex, BiasedMutexGuard, BiasedRwLock, BiasedRwLockReadGuard, BiasedRwLockWriteGuard,
    KindMutex, KindMutexGuard, KindRwLock, KindRwLockReadGuard, KindRwLockWriteGuard, Mutex,
    MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, kind_mutex, kind_rwlock,
};
pub use machine::Machine;
pub use random::{Choice, Turns};
pub use report::{Charge, Found, Why, begin_measurement, count_operation, end_measurement, finish};
pub use simulation::{Site, at, clock, cores, gather, inside, run, uncharged, work};

use coherence::Access;
use std::time::Duration;

/// Slots of threads. Further threads share the last one.
pub const SLOTS: usize = machine::CORES;

/// The virtual clock of the caller's core.
#[must_use]
pub fn virtual_time() -> Duration {
    Duration::from_nanos(clock() / 1_000)
}

/// The slot of the calling thread: the lowest that was free when it started.
#[must_use]
pub fn slot_of_caller() -> u16 {
    simulation::with(|sim| sim.slot()).unwrap_or(0)
}

/// One above the highest slot that a thread has ever had.
#[must_use]
pub fn slots_used() -> usize {
    simulation::with(|sim| sim.slots_used).unwrap_or(1)
}

/// Whether operations move the clocks now.
#[must_use]
pub fn is_charging() -> bool {
    simulation::with(|sim| sim.is_charging()).unwrap_or(false)
}

/// Interrupts all cores, as membarrier(2) does: it takes as long as a wake-up.
pub fn interrupt_all() {
    simulation::with(|sim| {
        let time = sim.wake_latency();
        sim.pass(time);
    });
}

/// Lets the other threads catch up between two polls.
pub fn spin_loop() {
    thread::spin_loop();
}

/// Runs `work` on the caller and on `others` new threads until all are done.
pub fn on_workers(others: usize, work: impl Fn() + Sync) {
    // Helpers run on idle cores. Outside of a simulation there are none.
    if !inside() {
        return work();
    }
    thread::scope(|scope| {
        for _ in 0..others.min(8) {
            scope.spawn(&work);
        }
        work();
    });
}

/// Declares that the caller loads, or with `stores` stores to, all bytes at an address.
pub fn access_bytes(address: usize, bytes: usize, stores: bool) {
    access::access_data(address, bytes, if stores { Access::Store } else { Access::Load });
}

/// Declares that the caller executes so many instructions here, beside the code that is spread over
/// all accesses. `counted` says whether they are among the instructions that were counted of an
/// operation.
pub fn declare_instructions(instructions: u64, counted: bool) {
    simulation::with(|sim| {
        if sim.is_charging() {
            sim.charges.declared += if counted { instructions } else { 0 };
            let time = instructions * sim.charges.instruction;
            sim.pass(time);
        }
    });
}

/// Declares that no code lies before the caller's next access.
pub fn at_once() {
    simulation::with(|sim| sim.me().at_once = true);
}

/// Declares that the caller's next accesses depend on its last one.
pub fn wait_for_last_access() {
    simulation::with(simulation::Simulation::wait_for_last_access);
}
