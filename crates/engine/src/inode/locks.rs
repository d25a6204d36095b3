//! Lock classes of the inode floor; the whole order is in `docs/LOCKS.md`.

use nextent_sync::LockClass;

/// Moving directories between directories: one at a time, so that no loop can form.
pub(crate) static RENAME: LockClass = LockClass::new("volume.rename", 90);
/// Who may change a file or a directory's entries. Parents before children.
pub(crate) static INODE_RW: LockClass = LockClass::nesting("inode.rw", 100);
/// Settling all files in which something was put off.
pub(crate) static ROUND: LockClass = LockClass::new("volume.settle-all", 95);
/// Waiting for transfers in flight.
pub(crate) static DRAIN: LockClass = LockClass::new("inode.drain", 105);
/// Who converts what was put off in a file.
pub(crate) static SETTLE: LockClass = LockClass::new("inode.settle", 106);
/// What one slot has put off in a file.
pub(crate) static DEFERRED: LockClass = LockClass::new("inode.deferred", 108);
/// The files in which something was put off.
pub(crate) static UNSETTLED: LockClass = LockClass::new("volume.unsettled", 109);
/// Who converts what several transfers have written.
pub(crate) static FINISH: LockClass = LockClass::new("inode.finish", 110);
/// What one slot knows of a file.
pub(crate) static SEEN: LockClass = LockClass::new("inode.seen", 295);
/// The names that one slot looked up lately.
pub(crate) static NAMES: LockClass = LockClass::new("names.slot", 240);
/// The map of one shard of the inode cache.
pub(crate) static ICACHE: LockClass = LockClass::new("icache.shard", 250);
/// A file's block map, root and nodes. Two when files are exchanged or copied.
pub(crate) static MAP: LockClass = LockClass::nesting("inode.map", 300);
/// The old list of orphans; taken before the states of its members.
pub(crate) static ORPHAN_LIST: LockClass = LockClass::new("orphan.list", 330);
/// The fields of one inode.
pub(crate) static STATE: LockClass = LockClass::new("inode.state", 340);
/// The entries of one block of the orphan file.
pub(crate) static ORPHAN_BLOCK: LockClass = LockClass::new("orphan.block", 350);
/// The superblock's fields.
pub(crate) static SUPER: LockClass = LockClass::new("volume.super", 445);
/// The last damage that was noted.
pub(crate) static DAMAGE: LockClass = LockClass::new("volume.damage", 446);
