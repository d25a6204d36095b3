//! The seam between back ends: all that the rest of the crate is built from.
//!
//! Each back end is a module with the same names: `Mutex`, `RwLock`,
//! `Condvar` and their guards (no class, no poison), `OwnMutex`, `OwnRwLock`, `KindMutex`,
//! `KindRwLock` and theirs, `kind_mutex`, `kind_rwlock`, `OnceLock`, `atomic`, `thread`,
//! `hint`, `Instant`, `unix_time`, `coarse_unix_time`, `light_barrier`, `heavy_barrier`,
//! `available_cores`, `available_memory`, `memory_pressure`, `release_memory`,
//! `on_workers`, `SLOTS`, `slot_of_caller`, `slot_and_owner`, `slots_used` and
//! `thread_local`. Nothing outside these modules names `std::sync`, `parking_lot`,
//! `shuttle` or `loom`, and no `static` above them holds one of these types: a model's
//! objects belong to one execution of a test.

#[cfg(all(feature = "model-shuttle", feature = "model-loom"))]
compile_error!("features `model-shuttle` and `model-loom` exclude each other");

#[cfg(all(feature = "simulated", any(feature = "model-shuttle", feature = "model-loom")))]
compile_error!("feature `simulated` excludes the models");

#[cfg(not(any(feature = "simulated", feature = "model-shuttle", feature = "model-loom")))]
mod real;
#[cfg(not(any(feature = "simulated", feature = "model-shuttle", feature = "model-loom")))]
pub use real::*;

#[cfg(feature = "simulated")]
pub(crate) mod sim;
#[cfg(feature = "simulated")]
pub use sim::*;

#[cfg(any(feature = "model-shuttle", feature = "model-loom"))]
mod model;
#[cfg(any(feature = "model-shuttle", feature = "model-loom"))]
pub use model::*;

/// A constructor that is `const` except under loom, whose objects register
/// themselves with the execution when they are made.
macro_rules! constant {
    ($(#[$meta:meta])* $vis:vis const fn $($rest:tt)*) => {
        #[cfg(not(feature = "model-loom"))]
        $(#[$meta])* $vis const fn $($rest)*
        #[cfg(feature = "model-loom")]
        $(#[$meta])* $vis fn $($rest)*
    };
}
pub(crate) use constant;
