//! The seam between back ends: the names that the rest of the crate is built from.
//!
//! Each back end is a module with the same names:
//!
//! - locks without class and poison, with their guards: `Mutex`, `RwLock`, `Condvar`,
//!   `BiasedMutex`, `BiasedRwLock`, `KindMutex`, `KindRwLock`, `kind_mutex`, `kind_rwlock`,
//!   `OnceLock`
//! - `atomic`, `asymmetric_fast`, `asymmetric_slow`
//! - `thread`, `on_workers`, `thread_local`, `hint`, `available_cores`
//! - `SLOTS`, `slot_of_caller`, `slot_and_owner`, `slots_used`
//! - `Instant`, `unix_time`, `coarse_unix_time`
//! - `available_memory`, `memory_pressure`, `release_memory`, `HashKeys`
//! - what operations cost, see `uncharged`
//!
//! Invariants: no other module names `std::sync`, `parking_lot`, `shuttle` or `loom`. No `static`
//! above holds one of these types: a model's objects belong to one execution of a test.

#[cfg(all(feature = "model-shuttle", feature = "model-loom"))]
compile_error!("features `model-shuttle` and `model-loom` exclude each other");

#[cfg(not(any(feature = "external-backend", feature = "model-shuttle", feature = "model-loom")))]
mod real;
#[cfg(not(any(
    feature = "external-backend",
    feature = "model-shuttle",
    feature = "model-loom"
)))]
pub use real::*;

#[cfg(feature = "external-backend")]
mod external;
#[cfg(feature = "external-backend")]
pub use external::*;

#[cfg(any(feature = "model-shuttle", feature = "model-loom"))]
mod model;
#[cfg(any(feature = "model-shuttle", feature = "model-loom"))]
pub use model::*;

#[cfg(any(feature = "external-backend", feature = "model-shuttle", feature = "model-loom"))]
mod once;
#[cfg(not(feature = "external-backend"))]
mod uncharged;
#[cfg(any(feature = "external-backend", feature = "model-shuttle", feature = "model-loom"))]
mod virtual_time;

/// A constructor that is `const` except under loom, whose objects register with the execution when
/// they are made.
macro_rules! constant {
    ($(#[$meta:meta])* $vis:vis const fn $($rest:tt)*) => {
        #[cfg(not(feature = "model-loom"))]
        $(#[$meta])* $vis const fn $($rest)*
        #[cfg(feature = "model-loom")]
        $(#[$meta])* $vis fn $($rest)*
    };
}
pub(crate) use constant;
