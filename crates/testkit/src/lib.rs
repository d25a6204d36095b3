//! Oracles and generators for tests. No published crate depends on this one.
//!
//! The oracles are independent of the engine: e2fsprogs ([`e2fs`]), the kernel's mount
//! ([`KernelMount`]), and a model that keeps bytes in vectors ([`ModelFs`]), which is compared with
//! the kernel. Input is random but repeatable: it depends only on a seed ([`Rng`]) or on proptest.
//!
//! A test skips with a [`Skip`] if a tool, a right or a device is missing; [`need!`] returns from
//! the test then. Any other failure panics with the tool's output, since a test is the only caller.

#![forbid(unsafe_code)]

mod authority;
mod change;
mod crash;
mod disk;
pub mod e2fs;
mod maker;
mod model;
mod model_disk;
mod mount;
mod namespace;
mod nbd;
mod promise;
mod rng;
mod skip;
pub mod tree;

pub use authority::{Authority, Certificate};
pub use change::{change_with_promises, check_changes};
pub use crash::{CrashReport, CutInfo, Explorer, Variant};
pub use disk::DiskImage;
pub use maker::{Made, TreeMaker};
pub use model::{
    HostFs, ModelFs, Op, PosixFs, RenameFlags, XattrFlags, ops, perform, run_apart, run_together,
    same_result, sample_ops,
};
pub use model_disk::ModelDisk;
pub use mount::{Access, KernelMount};
pub use namespace::{DETACH, namespace};
pub use nbd::NbdServer;
pub use promise::{append_with_promises, check_promises};
pub use rng::Rng;
pub use skip::Skip;
