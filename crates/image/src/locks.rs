//! The locks of a copy. Except [`WRITE`] they are held for a few instructions, and never while a
//! source or a sink is called.

use nextent_sync::LockClass;

/// Jobs that wait for a worker.
pub(super) static QUEUE: LockClass = LockClass::new("copy.queue", 20);
/// Directories that a walk has entered.
pub(super) static ENTERED: LockClass = LockClass::new("copy.entered", 25);
/// Files with several names that a copy has met.
pub(super) static LINKS: LockClass = LockClass::new("copy.links", 30);
/// A result that another thread waits for.
pub(super) static SLOT: LockClass = LockClass::new("copy.slot", 40);
/// Unused buffers.
pub(super) static POOL: LockClass = LockClass::new("copy.pool", 45);
/// Writing to an image whose host lets one thread write at a time: waiting here costs less than
/// spinning there. Held across the write.
pub(super) static WRITE: LockClass = LockClass::new("copy.write", 48);
/// Notes that were printed.
pub(super) static NOTES: LockClass = LockClass::new("copy.notes", 49);
/// That a volume was full, which is not reported yet.
pub(super) static FULL: LockClass = LockClass::new("copy.full", 46);
/// Inodes of the target that workers write.
pub(super) static WRITERS: LockClass = LockClass::new("copy.writers", 47);
