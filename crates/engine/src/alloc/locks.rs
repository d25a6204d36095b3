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
pub(super) static HOME: LockClass = LockClass::new("alloc.group-desc", 430);
/// The superblock's totals as the last commit left them.
pub(super) static TOTALS: LockClass = LockClass::new("alloc.totals", 435);
/// One recall of all slots' quotas at a time.
pub(super) static RECALL: LockClass = LockClass::new("alloc.recall", 440);

// Of the museum's designs; a volume has those of its own design only.

/// ext3 of 2002: the whole of allocate and free.
pub(super) static MUSEUM_SUPER: LockClass = LockClass::new("museum.super", 405);
/// Designs of mballoc: what one CPU has set aside for small files.
pub(super) static MUSEUM_LOCALITY: LockClass = LockClass::new("museum.locality", 402);
/// Designs of mballoc: all of a group, hashed.
pub(super) static MUSEUM_GROUP: LockClass = LockClass::new("museum.group", 408);
/// Designs of mballoc: groups of one order, as a list.
pub(super) static MUSEUM_ORDER_LIST: LockClass = LockClass::new("museum.order-list", 413);
/// Designs of mballoc: groups of one order, as a map; held while it changes.
pub(super) static MUSEUM_ORDER_MAP: LockClass = LockClass::new("museum.order-map", 413);
/// Designs of mballoc: lists of freed runs, and at first their count and the shared goal.
pub(super) static MUSEUM_MD: LockClass = LockClass::new("museum.md", 414);
/// The designs of ext3: what the journal keeps of a group's bitmap, and the lock of its buffer.
pub(super) static MUSEUM_BUFFER: LockClass = LockClass::new("museum.buffer", 412);
/// ext3 of 2003: all counts of free blocks.
pub(super) static MUSEUM_COUNTERS: LockClass = LockClass::new("museum.counters", 415);
/// ext3 as merged: the free count of a group, hashed.
pub(super) static MUSEUM_GROUP_COUNT: LockClass = LockClass::new("museum.group-count", 416);
/// The part of a counter that is no CPU's own.
pub(super) static MUSEUM_PER_CPU: LockClass = LockClass::new("museum.per-cpu", 418);
