//! Allocates and frees blocks and inode numbers.
//!
//! # Invariants
//!
//! - [`BlockAlloc`] allocates a block to at most one caller at a time.
//! - It does not allocate a freed block while a crash can still bring back the block's former use.
//! - It does not allocate a reserve to a caller without the privilege for that reserve.
//! - [`InodeAlloc`] allocates an inode number to at most one caller at a time.
//! - All threads may call both at once, each under a handle.
//!
//! Under a region's lock its clusters add up at any moment:
//!
//! free clusters = zero bits of `current`
//!               = buddy + reserved for windows + being trimmed + held back
//!
//! A cluster is *held back* if its bit is clear in `current`, but set in the durable image or in
//! the image of a transaction that is not durable yet. On disk the bitmap, the descriptor and the
//! superblock count the zero bits of `current` at the end of each transaction. The counters hold
//! the sum over all regions, less what callers have claimed and not yet taken.
//!
//! # Concurrency
//!
//! Each cell says what orders the two operations. All cells mean the lock of the region.
//!
//! | | allocate | free | commit (render) | commit (durable) | trim |
//! |---|---|---|---|---|---|
//! | allocate | lock; in steady state each slot leases different regions | lock; a freed cluster enters the buddy only if no image holds it | lock; the first change in the next transaction saves the image | lock; the difference of the images enters the buddy | lock; the run is not in the buddy during the discard |
//! | free | | lock; the second caller finds a clear bit and returns an error | as for allocate | as for allocate | lock; a run under trim is free, so a free of it fails |
//! | commit (render) | | | one commit at a time | as on the left | trimming changes no bit of `current` |
//! | commit (durable) | | | | as on the left | lock; only clusters that are not in the buddy enter it |
//! | trim | | | | | lock; a second trim of a region finds no run |
//!
//! - Loading a group takes no lock. The first thread to install its result wins (`groups`).
//! - A lease is a preference, not a lock (`lease`).
//! - A caller claims clusters from the counters before a search, and returns the rest after it
//!   (`counters`). The counters may be too low for a moment, never too high.
//! - Only commits change descriptors and totals (`descriptors`).
//!
//! # Modules
//!
//! | module | responsibility |
//! |---|---|
//! | `bits`, `buddy` | free clusters of a region, by position, by length and by order |
//! | `region_state`, `region` | which clusters are allocatable; the lock and the journal |
//! | `layout`, `system` | division of the volume into regions; the system zone |
//! | `core`, `groups`, `descriptors` | hints for each group; loading; descriptors at a commit |
//! | `lease`, `window`, `counters` | region preference; growing files; free-space accounting |
//! | `blocks`, `trim` | operations on blocks |
//! | `inodes`, `inode_region`, `orlov` | inode numbers |
//! | `seam` | interface for replacement allocators |

pub mod bits;
mod blocks;
pub mod buddy;
#[cfg(test)]
mod buddy_model;
mod core;
mod counters;
mod descriptors;
mod error;
mod groups;
#[cfg(all(test, feature = "model-shuttle"))]
mod inode_models;
mod inode_region;
mod inodes;
mod layout;
mod lease;
mod locks;
#[cfg(all(test, feature = "model-shuttle"))]
mod models;
mod orlov;
mod quotas;
mod region;
mod region_state;
mod request;
pub(crate) mod seam;
mod system;
#[cfg(all(test, not(feature = "model-shuttle")))]
mod tests;
mod trim;
mod window;

pub use blocks::BlockAlloc;
pub(crate) use descriptors::SUPERBLOCK_SEAL;
pub use inodes::{InodeAlloc, InodeKind};
pub use request::{BlockKind, BlockRequest, BlockRun, Privilege};
pub use window::Window;

/// The parts that a replacement allocator uses.
#[cfg(feature = "lab")]
pub(crate) mod lab_exports {
    pub use crate::alloc::core::{Core, GroupInfo, bitmap_error};
    pub use crate::alloc::counters::signed;
    pub use crate::alloc::descriptors::CommittedDesc;
    pub use crate::alloc::error::{Error, Result};
    pub use crate::alloc::groups::Groups;
    pub use crate::alloc::inodes::INODE_CREDITS;
    pub use crate::alloc::layout::{ClusterPos, Layout, RegionNo};
    pub use crate::alloc::seam::{
        AllocatorChoice, BlockAllocator, MakeAllocator, ReplacementState,
    };
}
