//! Lock classes of this crate; the whole order is in `docs/LOCKS.md`.

use nextent_sync::LockClass;

/// A running handle counts as a lock: nothing that waits for a commit may be
/// started under it.
pub(crate) static HANDLE: LockClass = LockClass::new("journal.handle", 200);
/// The map of one cache shard.
pub(crate) static SHARD: LockClass = LockClass::new("cache.shard", 500);
/// Reading one block from the device; held across that read.
pub(crate) static LOAD: LockClass = LockClass::new("cache.load", 490);
/// The images and marks of one block.
pub(crate) static BLOCK: LockClass = LockClass::new("cache.block", 510);
/// What one slot has changed in the running transaction.
pub(crate) static SLOT: LockClass = LockClass::new("journal.slot", 600);
/// Writing home: held by a checkpoint for one batch, and by a commit that
/// withdraws blocks from checkpointing.
pub(crate) static WRITEBACK: LockClass = LockClass::new("journal.writeback", 480);
/// Committed transactions that are not yet checkpointed.
pub(crate) static QUEUE: LockClass = LockClass::new("journal.queue", 605);
/// One checkpoint at a time.
pub(crate) static CHECKPOINT: LockClass = LockClass::new("journal.checkpoint", 470);
/// Requests for commits, who commits, who asked for the last and the next.
pub(crate) static CONTROL: LockClass = LockClass::new("journal.control", 610);
/// Callers in one room that wait for a commit.
pub(crate) static ROOM: LockClass = LockClass::new("journal.room", 615);
/// Flushing the device, for all who wait for it.
pub(crate) static FLUSH: LockClass = LockClass::new("store.flush", 640);
/// Head and tail of the log, and its superblock.
pub(crate) static LOG: LockClass = LockClass::new("journal.log", 620);
