//! Lock classes of the allocator; the whole order is in `docs/LOCKS.md`.
//!
//! All of them rank above the start of a handle, so none is ever held while a
//! handle is started or restarted, and a commit that renders a region waits at
//! most for a search in memory.

use nextent_sync::LockClass;

/// What one slot has leased. Contended only when slots are shared.
pub(super) static LEASE: LockClass = LockClass::new("alloc.lease", 400);
/// The loaded groups and the clock that drops them; held while it looks at a few.
pub(super) static GROUPS: LockClass = LockClass::new("alloc.groups", 409);
/// What is loaded of one group: shared to use it, exclusively to load or drop it.
pub(super) static GROUP: LockClass = LockClass::new("alloc.group", 409);
/// Everything of one region of blocks.
pub(super) static REGION: LockClass = LockClass::new("alloc.region", 410);
/// Everything of one region of inode numbers.
pub(super) static INODES: LockClass = LockClass::new("alloc.inodes", 420);
/// How far a group's inode table is initialised; held across zeroing, never by a commit.
pub(super) static TABLE: LockClass = LockClass::new("alloc.inode-table", 425);
/// A group's descriptor as the last commit left it; only commits take it often.
pub(super) static GROUP_DESC: LockClass = LockClass::new("alloc.group-desc", 430);
/// The superblock's totals as the last commit left them.
pub(super) static TOTALS: LockClass = LockClass::new("alloc.totals", 435);
/// One recall of all slots' quotas at a time.
pub(super) static RECALL: LockClass = LockClass::new("alloc.recall", 440);
