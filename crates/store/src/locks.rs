//! Lock classes of this crate; the whole order is in `docs/LOCKS.md`.

use nextent_sync::LockClass;

/// A running handle counts as a lock: its thread must not wait for a commit.
pub(crate) static HANDLE: LockClass = LockClass::new("journal.handle", 200);
/// The map of one cache shard.
pub(crate) static SHARD: LockClass = LockClass::new("cache.shard", 500);
/// The first read of one block; held across that read.
pub(crate) static LOAD: LockClass = LockClass::new("cache.load", 490);
/// The images and marks of one block.
pub(crate) static BLOCK: LockClass = LockClass::new("cache.block", 510);
/// The changes of one per-thread slot in the running transaction.
pub(crate) static SLOT: LockClass = LockClass::new("journal.slot", 600);
/// Writing in place: held by a checkpoint for one batch, and by a commit that withdraws blocks from
/// the checkpoint.
pub(crate) static WRITEBACK: LockClass = LockClass::new("journal.writeback", 480);
/// Committed transactions that are not yet checkpointed.
pub(crate) static QUEUE: LockClass = LockClass::new("journal.queue", 605);
/// One checkpoint at a time.
pub(crate) static CHECKPOINT: LockClass = LockClass::new("journal.checkpoint", 470);
/// Requests for commits, the turn to commit, the callers of the last commit and the next.
pub(crate) static CONTROL: LockClass = LockClass::new("journal.control", 610);
/// Callers in one wait queue for a commit.
pub(crate) static WAIT_QUEUE: LockClass = LockClass::new("journal.wait-queue", 615);
/// One flush of the device, shared by all threads that wait for one.
pub(crate) static FLUSH: LockClass = LockClass::new("store.flush", 640);
/// Head and tail of the log, and its superblock.
pub(crate) static LOG: LockClass = LockClass::new("journal.log", 620);
