//! The designs of ext3, ext4 and jbd2 since 2002, for comparison with the product's.
//!
//! Each [`Design`] replaces parts of the engine at its seams. Designs differ in their locks and
//! searches, never in the format on disk.
//!
//! | module | contents |
//! |---|---|
//! | `design` | the strategies; the presets with names, dates and sources |
//! | `allocator` | the block allocators |
//! | `direct` | the locks of direct writes |
//! | `gates` | the journal's admissions |
#![forbid(unsafe_code)]

mod allocator;
pub mod design;
mod direct;
pub mod gates;

pub use design::{Design, UnknownDesign};
