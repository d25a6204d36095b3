//! Lock classes of this layer; see `docs/LOCKS.md`.

use nextent_sync::LockClass;

/// Known blocks of attributes and their reference counts; held across reading a block.
pub(super) static SHARE: LockClass = LockClass::new("xattr.share", 360);
