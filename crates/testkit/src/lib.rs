//! Oracles and generators for tests; no shipped crate depends on this one.
//!
//! Nothing is trusted because we wrote it, so what judges an image here is
//! somebody else's: e2fsck and its kin ([`e2fs`]), the kernel's mount
//! ([`KernelMount`]), a model that keeps bytes in vectors ([`ModelFs`], itself
//! held against the kernel). What feeds them is random but repeatable: all
//! chance comes from a seed ([`Rng`]) or from proptest.
//!
//! A tool, right or device that is missing makes a test skip, in a plain
//! word, by [`Skip`]; anything else that goes wrong panics with the tool's own
//! text, since a test is the only caller. [`need!`] turns the one into a return.

#![forbid(unsafe_code)]

mod change;
mod crash;
pub mod e2fs;
mod maker;
mod model;
mod model_disk;
mod mount;
mod promise;
mod rng;
mod skip;
pub mod tree;

pub use change::{change_with_promises, check_changes};
pub use crash::{CrashReport, CutInfo, Explorer, Variant};
pub use maker::{Made, TreeMaker};
pub use model::{
    HostFs, ModelFs, Op, PosixFs, RenameFlags, XattrFlags, ops, perform, run_apart, run_together,
    same_result, sample_ops,
};
pub use model_disk::ModelDisk;
pub use mount::{Access, KernelMount};
pub use promise::{append_with_promises, check_promises};
pub use rng::Rng;
pub use skip::Skip;
