//! A POSIX file system small enough to be believed.
//!
//! [`PosixFs`] is what a test drives: paths in, errno out. [`ModelFs`] keeps
//! everything in vectors; [`HostFs`] does the same by system calls below a
//! directory, so that the model is itself held against the kernel; the engine's
//! tests put a volume behind the trait. [`ops`] makes sequences of [`Op`] and
//! [`perform`] does one.

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
