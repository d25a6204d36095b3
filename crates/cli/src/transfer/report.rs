//! What went wrong and how far the copy is.

use super::{Progress, Trouble, locks};
use nextent_sync::Mutex;
use nextent_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::HashSet;

/// Counts and failures of one copy, from all its threads.
pub(crate) struct Report {
    /// The command, for messages.
    what: &'static str,
    /// What is written to: named when nothing more fits into it.
    target: String,
    progress: Progress,
    failed: AtomicU64,
    /// Notes that were made: each is made once.
    noted: Mutex<HashSet<String>>,
    /// Nothing more is to be done. Relaxed: a job that slips through only costs time.
    stopped: AtomicBool,
}

impl Report {
    /// Nothing yet, for the command `what`, which writes to `target`.
    pub(crate) fn new(what: &'static str, target: impl Into<String>, progress: Progress) -> Self {
        let (target, failed) = (target.into(), AtomicU64::new(0));
        let noted = Mutex::new(&locks::NOTES, HashSet::new());
        Self { what, target, progress, failed, noted, stopped: AtomicBool::new(false) }
    }

    /// Prints that `place` failed. A fatal trouble is printed once and ends the copy. A note
    /// is no failure.
    pub(crate) fn fail(&self, place: &str, trouble: &Trouble) {
        if trouble.note {
            // The first place stands for all: a stream may have the same in each entry.
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

    /// Tells the user something about `place` that is no failure.
    pub(crate) fn note(&self, place: &str, text: &str) {
        self.progress.line(&format!("{} {place}: {text}", self.what));
    }

    /// Whether everything should end.
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

    /// Counts bytes moved.
    pub(crate) fn bytes(&self, bytes: u64) {
        self.progress.bytes(bytes);
    }
}
