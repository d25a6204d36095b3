//! The directories that a walk has entered, so that it enters none twice.
//!
//! In a damaged or hostile image a directory may be an entry of itself, of a directory below it, or
//! of several others. A walk by names would then be endless, or exponential in the number of
//! directories.

use super::{EntryError, FileId, Meta, Result, locks};
use nextent_sync::Mutex;
use std::collections::HashSet;

/// The directories that all threads of one walk have entered.
pub(super) struct Entered {
    /// `[copy.entered]`
    dirs: Mutex<HashSet<FileId>>,
    /// Whether a second entry fails.
    once: bool,
}

impl Entered {
    pub(super) fn new(once: bool) -> Self {
        Self { dirs: Mutex::new(&locks::ENTERED, HashSet::new()), once }
    }

    /// Records that the walk enters the directory `meta`.
    ///
    /// # Errors
    /// The walk has entered it before.
    pub(super) fn enter(&self, meta: &Meta) -> Result<()> {
        self.enter_id(meta.id)
    }

    /// Records that the walk enters the directory `id`.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    pub(super) fn enter_id(&self, id: FileId) -> Result<()> {
        if !self.once || self.dirs.lock().insert(id) {
            return Ok(());
        }
        let ino = id.ino;
        Err(EntryError::new(format!(
            "this directory (inode {ino}) has another name or contains itself; not entered again"
        )))
    }
}
