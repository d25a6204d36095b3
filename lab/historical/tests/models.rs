//! Shuttle models of the allocators that share bits without a lock, and of those that try locks.
#![cfg(feature = "model-shuttle")]

#[path = "../../../crates/engine/src/alloc/models/world.rs"]
mod world;

use nextent::lab_seams::alloc::{
    AllocatorChoice, BlockAlloc, BlockKind, BlockRequest, BlockRun, Privilege,
};
use nextent_historical::Design;
use world::{image, schedule, work};

#[test]
fn blocks_are_exclusive_and_reusable_only_when_durable() {
    let Some(bytes) = image(700) else { return };
    for name in ["ext3-2003", "ext3-final", "ext4-6.16/s1", "v3-01/s1", "ext4-6.17/s1"] {
        let (bytes, design) = (bytes.clone(), Design::named(name).unwrap());
        let run = move || drop(schedule(&bytes, &design.allocator(), &[work, work]));
        shuttle::check_random(run, 60);
    }
}
