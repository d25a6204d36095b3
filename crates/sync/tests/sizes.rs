//! How large locks are: simulated ones are made as large, so that objects with locks lie on as many
//! cache lines (`lab/sim/src/tests.rs` has the same numbers).
#![cfg(all(
    target_pointer_width = "64",
    not(any(feature = "model-shuttle", feature = "model-loom", feature = "lockstat"))
))]

use nextent_sync::{BiasedRwLock, KindMutex, KindRwLock, Mutex, RwLock};

#[test]
fn real_locks_are_as_large_as_simulated_ones() {
    assert_eq!([size_of::<Mutex<u64>>(), size_of::<RwLock<u64>>()], [24, 24]);
    assert_eq!([size_of::<KindMutex<u64>>(), size_of::<KindRwLock<u64>>()], [24, 32]);
    assert_eq!(size_of::<BiasedRwLock<u64>>(), 32);
}
