//! Inodes in memory: loaded, created, changed, rendered into their table blocks, freed.
//!
//! This layer combines allocator, map and store for one file at a time. It checks no permissions
//! and resolves no paths.
//!
//! | part of an inode | lock | held for |
//! |---|---|---|
//! | directory entries, size, contents | `inode.rw` (100), see `rw_lock` | a whole operation |
//! | block map | `inode.map` (300) | one operation on the map, inside a handle when it changes |
//! | all fields | `inode.state` (340) | a few instructions, by the commit too |
//!
//! A commit takes only `inode.state`, which is never held across the start of a handle or I/O. So a
//! commit never waits for a thread that waits for a commit.

pub(crate) mod attributes;
mod cache;
pub(crate) mod change;
pub(crate) mod clock;
pub(crate) mod create;
pub(crate) mod credits;
mod damage;
pub(crate) mod deferred_conversion;
pub(crate) mod entries;
pub(crate) mod fast;
pub(crate) mod fs;
pub(crate) mod grow;
mod locks;
pub(crate) mod name_cache;
pub(crate) mod numbers;
pub(crate) mod object;
pub(crate) mod orphan;
mod phase;
pub(crate) mod rw_lock;
#[cfg(feature = "lab")]
pub(crate) mod seam;
mod snapshot;
pub(crate) mod superblock;
pub(crate) mod truncate;
mod zero_out;

pub use cache::Shrink;
pub(crate) use change::Change;
pub(crate) use fs::{Fs, FsParts};
pub(crate) use object::{Inode, InodeState};
pub(crate) use snapshot::Snapshot;
