//! What the laboratory uses of the engine's inside: the seams at which it replaces parts of the
//! engine, what replacements are lab_exports there, and probes for measuring.
//!
//! Nothing here is API. Only a build with the feature `lab` has this module.

pub use crate::inode::rw_lock::Plan;
pub use crate::inode::seam::{Begun, DirectChoice, DirectWrites, Extents, Held, Write};
pub use crate::open::Replacements;
pub use crate::ops::HandleProbe;

/// The block allocator.
pub mod alloc {
    pub use crate::alloc::lab_exports::*;
    pub use crate::alloc::{
        BlockAlloc, BlockKind, BlockRequest, BlockRun, InodeAlloc, InodeKind, Privilege, Window,
        bits, buddy,
    };
}
