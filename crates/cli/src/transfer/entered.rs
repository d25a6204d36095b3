//! The directories that a walk has entered.
//!
//! In a damaged or hostile image a directory may be an entry of itself, of a directory below it, or
//! of several others. Entered at each of its names, few directories make a tree without end, or one
//! of exponential size.

use super::{FileId, Meta, Result, Trouble, locks};
use nextent_sync::Mutex;
use std::collections::HashSet;

/// Directories that one walk has entered, from all its threads.
pub(super) struct Entered {
    /// `[copy.entered]`
    dirs: Mutex<HashSet<FileId>>,
    /// Whether a directory may be entered once only.
    once: bool,
}

impl Entered {
    pub(super) fn new(once: bool) -> Self {
        Self { dirs: Mutex::new(&locks::ENTERED, HashSet::new()), once }
    }

    /// Notes that the walk enters the directory `meta`.
    ///
    /// # Errors
    /// If it has entered it before.
    pub(super) fn enter(&self, meta: &Meta) -> Result<()> {
        if !self.once || self.dirs.lock().insert(meta.id) {
            return Ok(());
        }
        let ino = meta.id.ino;
        Err(Trouble::new(format!(
            "this directory (inode {ino}) has another name or contains itself; not entered again"
        )))
    }
}
