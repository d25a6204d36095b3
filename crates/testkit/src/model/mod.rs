//! A model of a POSIX file system, small enough to be verified by reading.
//!
//! Tests use the trait [`PosixFs`]: paths in, errno out. [`ModelFs`] implements it in memory, and
//! [`HostFs`] by system calls below a directory, so that the model is compared with the kernel. The
//! engine's tests implement it for a volume. [`ops`] makes sequences of [`Op`], and [`perform`]
//! runs one.

mod fs;
mod host;
mod node;
mod op;
mod parallel;
mod posix;
mod source;

pub use fs::ModelFs;
pub use host::HostFs;
pub use op::{Op, ops, perform, same_result};
pub use parallel::{run_apart, run_together, sample_ops};
pub use posix::{PosixFs, RenameFlags, XattrFlags};

/// The errno of a failed call.
pub(crate) type Errno = i32;
