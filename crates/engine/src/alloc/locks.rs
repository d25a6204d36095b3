//! Lock classes of the allocator. `docs/LOCKS.md` has the whole order.
//!
//! All of them rank above the start of a handle: a thread holds none of them when it starts or
//! restarts a handle. A commit that renders a region therefore waits at most for a search in
//! memory.

use nextent_sync::LockClass;

/// The leases of one per-thread slot. Contended only when threads share a slot.
pub(super) static LEASE: LockClass = LockClass::new("alloc.lease", 400);
/// The loaded groups and the clock that drops them. Held while the clock examines a few groups.
pub(super) static GROUPS: LockClass = LockClass::new("alloc.groups", 409);
/// The loaded parts of one group: shared to use them, exclusive to install or drop them.
pub(super) static GROUP: LockClass = LockClass::new("alloc.group", 409);
/// Everything of one region of blocks.
pub(super) static REGION: LockClass = LockClass::new("alloc.region", 410);
/// Everything of one region of inode numbers.
pub(super) static INODES: LockClass = LockClass::new("alloc.inodes", 420);
/// How far a group's inode table is initialised. Held while it is zeroed, never by a commit.
pub(super) static TABLE: LockClass = LockClass::new("alloc.inode-table", 425);
/// A group's descriptor as the last commit left it. Rarely taken outside commits.
pub(super) static GROUP_DESC: LockClass = LockClass::new("alloc.group-desc", 430);
/// The superblock's totals as the last commit left them.
pub(super) static TOTALS: LockClass = LockClass::new("alloc.totals", 435);
/// Serialises recalls of all slots' quotas.
pub(super) static RECALL: LockClass = LockClass::new("alloc.recall", 440);
