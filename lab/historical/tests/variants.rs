//! Historical designs must pass the engine's tests of direct and buffered transfers.

#[path = "../../../crates/engine/tests/variants/buffered.rs"]
mod buffered;
#[path = "../../../crates/engine/tests/common/mod.rs"]
mod common;
#[path = "../../../crates/engine/tests/variants/damaged_size.rs"]
mod damaged_size;
#[path = "../../../crates/engine/tests/variants/direct.rs"]
mod direct;
#[path = "../../../crates/engine/tests/variants/freed_blocks.rs"]
mod freed_blocks;
#[path = "../../../crates/engine/tests/variants/queue.rs"]
mod queue;

use common::direct::Variant;
use nextent_historical::Design;
use nextent_historical::design::DirectWrites;

fn of(design: &Design) -> Variant {
    let shares_parts = design.direct == DirectWrites::SplitAfter;
    Variant { name: design.to_string(), options: design.options(), shares_parts }
}

/// A design of each rule of direct writes.
fn variants() -> Vec<Variant> {
    let names = ["ext4-6.2", "ext4-6.3", "ext4-7.0-dio"];
    names.iter().map(|name| of(&Design::named(name).unwrap())).collect()
}

/// Every preset but the default.
fn all_variants() -> Vec<Variant> {
    Design::all().iter().filter(|design| **design != Design::default()).map(of).collect()
}
