//! The locks of a copy: leaves, held for a few instructions, never while a
//! source or a sink is called; but for [`WRITE`].

use nextent_sync::LockClass;

/// Jobs that wait for a worker.
pub(super) static QUEUE: LockClass = LockClass::new("copy.queue", 20);
/// Directories that a walk has entered.
pub(super) static ENTERED: LockClass = LockClass::new("copy.entered", 25);
/// Files with several names.
pub(super) static LINKS: LockClass = LockClass::new("copy.links", 30);
/// A result that another thread waits for.
pub(super) static SLOT: LockClass = LockClass::new("copy.slot", 40);
/// Buffers that nobody uses.
pub(super) static POOL: LockClass = LockClass::new("copy.pool", 45);
/// Writing to an image whose host lets one write at a time: better to wait here than to spin there.
/// Held across the write.
pub(super) static WRITE: LockClass = LockClass::new("copy.write", 48);
/// Notes that were made.
pub(super) static NOTES: LockClass = LockClass::new("copy.notes", 49);
/// Inodes of the target that a worker writes, and waiting for one of them.
pub(super) static WRITERS: LockClass = LockClass::new("copy.writers", 47);
/// Whether the thread that draws the progress should end.
pub(super) static PROGRESS: LockClass = LockClass::new("copy.progress", 50);
