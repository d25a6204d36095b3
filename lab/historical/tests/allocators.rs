//! The historical allocators must pass the tests of the engine's allocator.

mod common;

#[path = "../../../crates/engine/src/alloc/tests/blocks.rs"]
mod blocks;
#[path = "../../../crates/engine/src/alloc/tests/crash_rule.rs"]
mod crash_rule;
#[path = "../../../crates/engine/src/alloc/tests/damage.rs"]
mod damage;
#[path = "../../../crates/engine/src/alloc/tests/fixture.rs"]
mod fixture;
#[path = "../../../crates/engine/src/alloc/tests/threads.rs"]
mod threads;
#[path = "../../../crates/engine/src/alloc/tests/trim.rs"]
mod trim;

use fixture::{CREDITS, Image, Open, Shadow, Variant, with_commits};
use nextent::lab_seams::alloc::{
    AllocatorChoice, BlockAlloc, BlockKind, BlockRequest, BlockRun, Error, INODE_CREDITS,
    InodeAlloc, InodeKind, Privilege, Result, Window,
};
use nextent_historical::Design;
use nextent_historical::design::Count;
use nextent_ondisk::{BlockNo, InodeNo};

fn of(designs: Vec<Design>) -> Vec<Variant> {
    let variant = |design: Design| Variant {
        choice: design.allocator(),
        // The check of 2003 is advisory.
        overdraws: design.count == Count::OneLock,
    };
    designs.into_iter().map(variant).collect()
}

/// Every preset but the default; those that can search by order do.
fn variants() -> Vec<Variant> {
    of(common::presets(false))
}

/// The same, and those that can search by order also with that option off.
fn all_variants() -> Vec<Variant> {
    of(common::presets(true))
}
