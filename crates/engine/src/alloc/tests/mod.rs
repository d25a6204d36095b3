//! The allocator over images of mke2fs, judged by e2fsck and by shadow maps.
//!
//! Tests that take a `Variant` hold for every allocator. `lab/historical/tests` runs them for each
//! of its own.

mod blocks;
mod crash_rule;
mod damage;
mod fixture;
mod groups;
mod inodes;
mod threads;
mod trim;

use super::error::{Error, Result};
use super::inodes::INODE_CREDITS;
use super::seam::AllocatorChoice;
use super::{
    BlockAlloc, BlockKind, BlockRequest, BlockRun, InodeAlloc, InodeKind, Privilege, Window,
};
use fixture::{CREDITS, Image, Open, Shadow, Variant, with_commits};
use nextent_ondisk::{BlockNo, InodeNo};

/// The allocators that the tests are run for.
fn variants() -> Vec<Variant> {
    vec![Variant::engine()]
}

/// The same, with each way to search of those that have several.
fn all_variants() -> Vec<Variant> {
    vec![Variant::engine()]
}
