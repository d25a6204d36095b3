//! Tests that hold for every variant of a volume: here for the engine as it is, in
//! `lab/historical/tests` for each of its replacements.

#[path = "../common/mod.rs"]
mod common;

mod buffered;
mod damaged_size;
mod direct;
mod lost_blocks;
mod queue;

use common::dio::Variant;

/// The variants of direct writes.
fn variants() -> Vec<Variant> {
    vec![Variant::engine()]
}

/// The variants of any kind.
fn all_variants() -> Vec<Variant> {
    vec![Variant::engine()]
}
