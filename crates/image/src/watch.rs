//! An observer in front of the program's.
//!
//! A builder that finds the size of an image measures the contents first, without progress, and
//! may try again with a larger image. So it withholds some events.

use super::{EntryError, Observer, Problem, locks};
use nextent_sync::Mutex;

/// Passes events on, but not all.
pub(super) struct Watch<'a> {
    to: &'a dyn Observer,
    /// Progress and notes are not passed on.
    measuring: bool,
    /// That the volume is full is not passed on yet.
    withholds: bool,
    full: Mutex<Option<(String, EntryError)>>,
}

impl<'a> Watch<'a> {
    /// For measuring: passes on failures only, and withholds that the volume is full.
    pub(super) fn measuring(to: &'a dyn Observer) -> Self {
        Self { measuring: true, ..Self::copying(to, true) }
    }

    /// For copying: withholds that the volume is full if `withholds`.
    pub(super) fn copying(to: &'a dyn Observer, withholds: bool) -> Self {
        let full = Mutex::new(&locks::FULL, None);
        Self { to, measuring: false, withholds, full }
    }

    /// Whether the volume was full.
    pub(super) fn is_full(&self) -> bool {
        self.full.lock().is_some()
    }

    /// Passes on what was withheld.
    pub(super) fn pass_on(&self) {
        let full = self.full.lock().take();
        if let Some((path, error)) = full {
            self.to.problem(&Problem { path: &path, error: &error });
        }
    }
}

impl Observer for Watch<'_> {
    fn entry(&self) {
        if !self.measuring {
            self.to.entry();
        }
    }

    fn bytes(&self, bytes: u64) {
        if !self.measuring {
            self.to.bytes(bytes);
        }
    }

    fn problem(&self, problem: &Problem<'_>) {
        if self.withholds && problem.error.full {
            *self.full.lock() = Some((problem.path.to_owned(), problem.error.clone()));
        } else if !(self.measuring && problem.error.is_note()) {
            self.to.problem(problem);
        }
    }
}
