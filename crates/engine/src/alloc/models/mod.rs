//! Shuttle models of the allocator: `cargo test -p nextent --features model-shuttle alloc::models`.

mod world;

use super::seam::AllocatorChoice;
use super::{BlockAlloc, BlockKind, BlockRequest, BlockRun, Privilege};
use nextent_ondisk::BlockNo;
use world::{World, image, schedule, work};

/// Reads the state of blocks in all groups and trims them, which loads the groups.
fn load_all_groups(world: &World) {
    let geo = world.geo.clone();
    for no in (geo.first_data_block.0 + 40..geo.blocks_count).step_by(100) {
        world.blocks.is_free(BlockNo(no), 1).unwrap();
    }
    world.blocks.trim(BlockNo(0), geo.blocks_count, 8).unwrap();
}

#[test]
fn blocks_are_exclusive_and_reused_only_after_a_durable_release() {
    let Some(bytes) = image(700) else { return };
    let run = move || drop(schedule(&bytes, &AllocatorChoice::default(), &[work, work]));
    shuttle::check_random(run, 300);
}

/// In models groups are dropped as soon as possible. Here most of them are idle.
#[test]
fn blocks_are_exclusive_while_groups_are_loaded_and_dropped() {
    let Some(bytes) = image(1400) else { return };
    let run = move || {
        let world = schedule(&bytes, &AllocatorChoice::default(), &[work, work, load_all_groups]);
        assert!(world.blocks.groups.drops() > 0, "no group was dropped");
    };
    shuttle::check_random(run, 300);
}
