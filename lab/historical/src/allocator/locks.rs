//! Lock classes of the historical allocators. A volume has only those of its design.

use nextent_sync::LockClass;

/// mballoc: one CPU's preallocation for small files.
pub(super) static LOCALITY: LockClass = LockClass::new("historical.locality", 402);
/// ext3 of 2002: every allocation and every free.
pub(super) static SUPER: LockClass = LockClass::new("historical.super", 405);
/// mballoc: a whole group, hashed.
pub(super) static GROUP: LockClass = LockClass::new("historical.group", 408);
/// ext3: the journal's images of a group's bitmap; the lock of the bitmap's buffer.
pub(super) static BUFFER: LockClass = LockClass::new("historical.buffer", 412);
/// mballoc: groups of one order, as a list.
pub(super) static ORDER_LIST: LockClass = LockClass::new("historical.order-list", 413);
/// mballoc: groups of one order, as a bitmap; held while it changes.
pub(super) static ORDER_MAP: LockClass = LockClass::new("historical.order-map", 413);
/// mballoc: lists of freed runs; in older designs also their count and the shared goal.
pub(super) static MD: LockClass = LockClass::new("historical.md", 414);
/// ext3 of 2003: all counts of free blocks.
pub(super) static COUNTERS: LockClass = LockClass::new("historical.counters", 415);
/// ext3 as merged: the free count of a group, hashed.
pub(super) static GROUP_COUNT: LockClass = LockClass::new("historical.group-count", 416);
/// The shared part of a per-CPU counter.
pub(super) static PER_CPU: LockClass = LockClass::new("historical.per-cpu", 418);
