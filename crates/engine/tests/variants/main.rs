//! Tests that every variant of the engine must pass: here the product's engine, in
//! `lab/historical/tests` the historical designs.

#[path = "../common/mod.rs"]
mod common;

mod buffered;
mod damaged_size;
mod direct;
mod freed_blocks;
mod queue;

use common::direct::Variant;

/// The variants for tests of direct writes.
fn variants() -> Vec<Variant> {
    vec![Variant::engine()]
}

/// The variants for all other tests.
fn all_variants() -> Vec<Variant> {
    vec![Variant::engine()]
}
