//! Inodes in memory: found, made, changed, rendered into their table blocks, freed.
//!
//! This floor ties allocator, map and store together for one file at a time and knows nothing of
//! permissions or names given by users. Who owns what:
//!
//! | part of an inode | lock | held for |
//! |---|---|---|
//! | who may change it | `inode.rw` (100) | a whole operation; `long` |
//! | block map | `inode.map` (300) | one verb, inside a handle when it changes |
//! | all fields | `inode.state` (340) | a few instructions, by the commit too |
//!
//! A commit takes `inode.state` only, which is never held across a handle's start or I/O, so a
//! commit never waits for someone who waits for a commit.

pub(crate) mod attributes;
mod cache;
pub(crate) mod change;
pub(crate) mod clock;
pub(crate) mod create;
pub(crate) mod credits;
mod damage;
pub(crate) mod entries;
pub(crate) mod fast;
pub(crate) mod fs;
pub(crate) mod grow;
mod locks;
pub(crate) mod long;
pub(crate) mod names;
pub(crate) mod numbers;
pub(crate) mod object;
pub(crate) mod orphan;
mod phase;
#[cfg(feature = "lab")]
pub(crate) mod seam;
pub(crate) mod settle;
pub(crate) mod superblock;
mod told;
pub(crate) mod truncate;
mod zero_out;

pub use cache::Shrink;
pub(crate) use change::Change;
pub(crate) use fs::{Fs, Parts};
pub(crate) use object::{Inode, InodeState};
pub(crate) use told::Traits;
