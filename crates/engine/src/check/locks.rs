//! Locks of the checker: leaves, held for a few instructions and never across I/O.

use nextent_sync::LockClass;

/// The words of one shard of a bitmap.
pub(super) static BITS: LockClass = LockClass::new("check.bits", 950);
/// What was found: groups, shared attribute blocks, names.
pub(super) static FOUND: LockClass = LockClass::new("check.found", 951);
/// The problems kept so far.
pub(super) static PROBLEMS: LockClass = LockClass::new("check.problems", 952);
