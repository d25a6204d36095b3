//! The lock of a file, or of a part of it.
//!
//! | user | `flock` | lock of bytes |
//! |---|---|---|
//! | writer of the whole file | exclusive | none |
//! | reader of the whole file | shared | all, shared |
//! | writer of a part | shared | the part, exclusive |
//! | reader of a part | shared | the part, shared |
//!
//! Locks of bytes belong to the open file (`F_OFD_SETLK`), as `flock` does. Byte n of the file has
//! the lock of byte [`SPACE`] + n. No file is so long, so these locks do not collide with locks
//! that other programs take of the image's own bytes: virtual machine monitors, and apptainer,
//! which locks the bytes of a partition before it starts the server that mounts it.
//!
//! | without | users of a part |
//! |---|---|
//! | locks of bytes (some file systems, systems other than Linux) | lock the whole file by `flock` |
//! | `flock` of its own (NFS, where the kernel makes it a lock of all bytes) | take the lock of bytes only, with which a `flock` then collides |

use super::super::options::OpenError;
use super::super::sys::{self, RangeLock};
use super::{Wanted, users};
use std::fs::File;
use std::io;
use std::ops::Range;

/// The lock of byte 0; locks of bytes below it are those of other programs.
pub(super) const SPACE: u64 = 1 << 62;

/// What a lock has to exclude.
#[derive(Clone, Debug)]
pub(super) struct Access {
    /// Other readers, too.
    pub(super) exclusive: bool,
    /// Users of these bytes; `None`: of all.
    pub(super) bytes: Option<Range<u64>>,
    /// The file may have other users even where bytes cannot be locked.
    pub(super) others: bool,
}

impl Access {
    /// Reading of the whole.
    pub(super) const READ: Self = Self { exclusive: false, bytes: None, others: false };

    /// The bytes.
    pub(super) fn range(&self) -> Range<u64> {
        self.bytes.clone().unwrap_or(0..u64::MAX)
    }

    /// The same access to a file below, of whose bytes this device has those from `start` to `end`.
    pub(super) fn within(&self, start: u64, end: u64) -> Self {
        let bytes = match &self.bytes {
            None if start == 0 && end == u64::MAX => None,
            None => Some(start..end),
            Some(bytes) => {
                let below = |at: u64| at.saturating_add(start).min(end);
                Some(below(bytes.start)..below(bytes.end))
            }
        };
        Self { bytes, ..self.clone() }
    }
}

/// Locks `file`.
///
/// # Errors
/// Another user has a lock, or the system refuses it.
pub(super) fn lock(file: &File, access: &Access, want: &Wanted<'_>) -> Result<(), OpenError> {
    let fail = |source: io::Error| OpenError::Io { path: want.shown(), source };
    let users = |bytes: Option<&Range<u64>>| {
        let meta = file.metadata();
        let users = meta.map(|meta| match bytes {
            None => users::of_locked(want.path, &meta),
            Some(bytes) => users::of_locked_bytes(want, &meta, bytes),
        });
        OpenError::Locked { path: want.shown(), users: users.unwrap_or_default() }
    };
    let flock = |exclusive: bool| match sys::try_lock(file, exclusive).map_err(fail)? {
        true => Ok(()),
        false => Err(users(None)),
    };
    if access.bytes.is_none() && access.exclusive {
        return flock(true);
    }
    let bytes = access.range();
    if access.bytes.is_none() || !sys::is_on_nfs(file) {
        flock(false)?;
    }
    let place = |at: u64| SPACE + at.min(SPACE - 1);
    // An empty range would mean all bytes from its start on.
    let place = place(bytes.start)..place(bytes.end.max(bytes.start.saturating_add(1)));
    match sys::try_lock_range(file, access.exclusive, &place).map_err(fail)? {
        RangeLock::Held => Ok(()),
        RangeLock::Refused => Err(users(Some(&place))),
        RangeLock::Impossible if access.bytes.is_none() || access.others => Ok(()),
        RangeLock::Impossible => flock(access.exclusive),
    }
}
