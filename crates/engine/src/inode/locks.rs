//! Lock classes of this layer; `docs/LOCKS.md` has the whole order.

use nextent_sync::LockClass;

/// The heartbeat of a volume with multiple mount protection.
pub(crate) static HEARTBEAT: LockClass = LockClass::new("volume.heartbeat", 86);
/// Moves of directories between directories, one at a time, so that no loop can form.
pub(crate) static RENAME: LockClass = LockClass::new("volume.rename", 90);
/// Discards of free blocks.
pub(crate) static TRIM: LockClass = LockClass::new("volume.trim", 88);
/// A directory's entries, or a file's size and contents. Parents before children.
pub(crate) static INODE_RW: LockClass = LockClass::nesting("inode.rw", 100);
/// Completing the deferred conversions of all files.
pub(crate) static COMPLETE_ALL: LockClass = LockClass::new("volume.complete-deferred", 95);
/// The wait of the exclusive holder for transfers in flight.
pub(crate) static DRAIN: LockClass = LockClass::new("inode.drain", 105);
/// Completing the deferred conversions of a file.
pub(crate) static COMPLETE_DEFERRED: LockClass = LockClass::new("inode.complete-deferred", 106);
/// The conversions that one slot has deferred in a file.
pub(crate) static DEFERRED: LockClass = LockClass::new("inode.deferred", 108);
/// The files with deferred conversions.
pub(crate) static DEFERRED_FILES: LockClass = LockClass::new("volume.deferred-files", 109);
/// The leader and the pending batch of a group conversion.
pub(crate) static GROUP_CONVERSION: LockClass = LockClass::new("inode.group-conversion", 110);
/// The extents of a file that one slot remembers.
pub(crate) static EXTENT_CACHE: LockClass = LockClass::new("inode.extent-cache", 295);
/// The names that one slot looked up recently.
pub(crate) static NAMES: LockClass = LockClass::new("names.slot", 240);
/// One shard of the inode cache.
pub(crate) static ICACHE: LockClass = LockClass::new("icache.shard", 250);
/// A file's block map, root and nodes. Two at once when files are exchanged or copied.
pub(crate) static MAP: LockClass = LockClass::nesting("inode.map", 300);
/// The old list of orphans; taken before the states of its members.
pub(crate) static ORPHAN_LIST: LockClass = LockClass::new("orphan.list", 330);
/// The fields of one inode.
pub(crate) static STATE: LockClass = LockClass::new("inode.state", 340);
/// The entries of one block of the orphan file.
pub(crate) static ORPHAN_BLOCK: LockClass = LockClass::new("orphan.block", 350);
/// The superblock's fields.
pub(crate) static SUPER: LockClass = LockClass::new("volume.super", 445);
/// The last damage noted in the superblock.
pub(crate) static DAMAGE: LockClass = LockClass::new("volume.damage", 446);
