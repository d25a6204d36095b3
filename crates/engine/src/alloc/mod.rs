//! Blocks and inode numbers: which are in use, who may take which, and what of
//! that is told to the disk.
//!
//! Promise: [`BlockAlloc`] hands out every block at most once, none before a
//! crash can no longer bring back its former use, and never more to anyone
//! than the reserves of others allow. [`InodeAlloc`] does the same for inode
//! numbers. Both may be called from all threads at once, under a handle.
//!
//! The identity behind it, in clusters, at any moment under the region's lock:
//!
//! free in core = zero bits of `current`
//!              = buddy + set aside for windows + being trimmed + held back
//!
//! where *held back* are the zero bits of `current` that are set in the image
//! of a transaction that is not durable yet, or in the durable one. On disk the
//! bitmap, the descriptor and the superblock say `zero bits of current` as of
//! the end of each transaction. The counters say the sum of it over all
//! regions, less what callers have claimed and not yet taken.
//!
//! | | allocate | free | commit (render) | commit (durable) | trim |
//! |---|---|---|---|---|---|
//! | allocate | region lock; in steady state each slot has its own regions | region lock; a freed cluster is in the buddy only if no image holds it | region lock; the first change in the next transaction sets the image aside | region lock; the images' difference enters the buddy | region lock; the run is out of the buddy meanwhile |
//! | free | | region lock; the loser finds a clear bit and reports it | as allocate | as allocate | region lock; what is trimmed is free already, so nobody frees it |
//! | commit (render) | | | commits are one after another | as left | trimming changes no bit of `current` |
//! | commit (durable) | | | | as left | region lock; only clusters out of the buddy are given to it |
//! | trim | | | | | region lock; one trim a region, the second finds nothing |
//!
//! Loading a group excludes nobody: what is loaded first counts (`groups`).
//! Leases exclude nobody either, they keep threads apart (`lease`). Counters
//! are claimed before a search and given back after it (`counters`), so the
//! sum of what threads hold can be too small for a moment, never too large.
//! Descriptors and totals are touched by commits only (`descriptors`).
//!
//! | module | one job |
//! |---|---|
//! | `bits`, `buddy` | free clusters of a region: by place, by length, by order |
//! | `region_state`, `region` | which bits may be handed out; the lock and the journal |
//! | `layout`, `system` | how the volume is cut; its own blocks |
//! | `core`, `groups`, `descriptors` | what is known of groups; loading; descriptors at a commit |
//! | `lease`, `window`, `counters` | who allocates where; growing files; how much is left |
//! | `blocks`, `trim` | the verbs on blocks |
//! | `inodes`, `inode_region`, `orlov` | inode numbers |
//! | `seam` | where another allocator may take the place of this one |

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

/// What a replacement allocator uses.
#[cfg(feature = "lab")]
pub(crate) mod lab_exports {
    pub use crate::alloc::blocks::ALLOCATE_CREDITS;
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
