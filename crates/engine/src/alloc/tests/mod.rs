//! Tests of the allocator on images of mke2fs, checked by e2fsck and by shadow maps.
//!
//! Tests that take a `Variant` are valid for every allocator. `lab/historical/tests` runs them for
//! the historical designs.

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

/// The allocators under test.
fn variants() -> Vec<Variant> {
    vec![Variant::engine()]
}

/// The allocators under test, each with all its search strategies.
fn all_variants() -> Vec<Variant> {
    vec![Variant::engine()]
}
