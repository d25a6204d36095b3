//! Shuttle models of the allocator: `cargo test -p nextent --features model-shuttle alloc::models`.

mod world;

use super::seam::AllocatorChoice;
use super::{BlockAlloc, BlockKind, BlockRequest, BlockRun, Privilege};
use nextent_ondisk::BlockNo;
use world::{World, image, schedule, work};

/// Looks at blocks of all groups and trims them, which loads the groups.
fn look(world: &World) {
    let geo = world.geo.clone();
    for no in (geo.first_data_block.0 + 40..geo.blocks_count).step_by(100) {
        world.blocks.is_free(BlockNo(no), 1).unwrap();
    }
    world.blocks.trim(BlockNo(0), geo.blocks_count, 8).unwrap();
}

#[test]
fn blocks_are_exclusive_and_come_back_only_when_durable() {
    let Some(bytes) = image(700) else { return };
    let run = move || drop(schedule(&bytes, &AllocatorChoice::default(), &[work, work]));
    shuttle::check_random(run, 300);
}

/// Under checkers groups leave memory whenever they can, and here most of them can.
#[test]
fn so_they_are_while_groups_come_and_go() {
    let Some(bytes) = image(1400) else { return };
    let run = move || {
        let world = schedule(&bytes, &AllocatorChoice::default(), &[work, work, look]);
        assert!(world.blocks.groups.drops() > 0, "no group left memory");
    };
    shuttle::check_random(run, 300);
}
