//! Prints failures of a copy, and counts its progress.

use super::{Progress, Trouble, locks};
use nextent_sync::Mutex;
use nextent_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::HashSet;

/// The counts and failures of all threads of one copy.
pub(crate) struct Report {
    /// The command, for messages.
    what: &'static str,
    /// The target, named when it is full.
    target: String,
    progress: Progress,
    failed: AtomicU64,
    /// Notes that were printed: each is printed once.
    noted: Mutex<HashSet<String>>,
    /// The copy is to end. Relaxed: a job that misses it only costs time.
    stopped: AtomicBool,
}

impl Report {
    /// An empty report of the command `what`, which writes to `target`.
    pub(crate) fn new(what: &'static str, target: impl Into<String>, progress: Progress) -> Self {
        let (target, failed) = (target.into(), AtomicU64::new(0));
        let noted = Mutex::new(&locks::NOTES, HashSet::new());
        Self { what, target, progress, failed, noted, stopped: AtomicBool::new(false) }
    }

    /// Prints that `place` failed. A fatal error is printed once and ends the copy. A note is not a
    /// failure.
    pub(crate) fn fail(&self, place: &str, trouble: &Trouble) {
        if trouble.note {
            // Printed for the first place only: a stream may have the same note for each entry.
            if self.noted.lock().insert(trouble.to_string()) {
                self.note(place, &trouble.to_string());
            }
            return;
        }
        self.failed.fetch_add(1, Ordering::Relaxed);
        let over = match trouble.fatal {
            true => self.stopped.swap(true, Ordering::Relaxed),
            false => self.stopped(),
        };
        if !over && !trouble.unread {
            let what = self.what;
            let line = match trouble.fatal {
                true => format!("{what} {place}: {}: {trouble}", self.target),
                false => format!("{what} {place}: {trouble}"),
            };
            self.progress.line(&line);
        }
    }

    /// Prints a note about `place`, which is not a failure.
    pub(crate) fn note(&self, place: &str, text: &str) {
        self.progress.line(&format!("{} {place}: {text}", self.what));
    }

    /// Whether the copy is to end.
    pub(crate) fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Whether anything failed.
    pub(crate) fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed) > 0
    }

    /// How many failures there were.
    pub(crate) fn failures(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Counts a file.
    pub(crate) fn file(&self) {
        self.progress.file();
    }

    /// Counts copied bytes.
    pub(crate) fn bytes(&self, bytes: u64) {
        self.progress.bytes(bytes);
    }
}
