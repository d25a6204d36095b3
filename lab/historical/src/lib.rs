//! The designs of ext3, ext4 and jbd2 since 2002, to be measured beside the present one.
//!
//! Each [`Design`] replaces parts of the engine at its seams. Designs differ in their locks and in
//! how they search, never in the format on disk.
//!
//! | module | contents |
//! |---|---|
//! | `design` | the strategies, the presets with dates and sources, and their names |
//! | `allocator` | the block allocators |
//! | `direct` | which locks direct writes take |
//! | `gates` | the journal's admissions |
#![forbid(unsafe_code)]

mod allocator;
pub mod design;
mod direct;
pub mod gates;

pub use design::{Design, UnknownDesign};
