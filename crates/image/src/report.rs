//! Counts the failures of a copy, and passes its events to the program.

use super::{EntryError, Observer, Problem, locks};
use nextent_sync::Mutex;
use nextent_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::HashSet;
use std::fmt;

/// The failures of all threads of one copy.
pub struct Report<'a> {
    observer: &'a dyn Observer,
    failed: AtomicU64,
    skipped: AtomicU64,
    /// Notes that were passed on: each is passed on once.
    noted: Mutex<HashSet<String>>,
    /// The copy is to end. Relaxed: a job that misses it only costs time.
    stopped: AtomicBool,
}

impl<'a> Report<'a> {
    /// An empty report, which passes events to `observer`.
    pub fn new(observer: &'a dyn Observer) -> Self {
        let noted = Mutex::new(&locks::NOTES, HashSet::new());
        let (failed, skipped) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { observer, failed, skipped, noted, stopped: AtomicBool::new(false) }
    }

    /// Records that the entry `path` failed. A fatal error is passed on once and ends the copy. A
    /// note is not a failure.
    pub fn fail(&self, path: &str, error: &EntryError) {
        let problem = Problem { path, error };
        if error.is_note() {
            // Passed on for the first entry only: a stream may have the same note for each.
            if self.noted.lock().insert(error.to_string()) {
                self.observer.problem(&problem);
            }
            return;
        }
        self.failed.fetch_add(1, Ordering::Relaxed);
        let over = match error.is_fatal() {
            true => self.stopped.swap(true, Ordering::Relaxed),
            false => self.stopped(),
        };
        if !over && !error.unread {
            self.observer.problem(&problem);
        }
    }

    /// Passes on a note about the entry `path`, which is not a failure.
    pub(crate) fn note(&self, path: &str, text: &str) {
        self.observer.problem(&Problem { path, error: &EntryError::note(text) });
    }

    /// Counts and passes on that the entry `path` is left out as the caller asked, because of
    /// `error`.
    pub(crate) fn skip(&self, path: &str, error: &EntryError) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
        self.note(path, &format!("{error}; skipped"));
    }

    /// How many entries were left out as the caller asked.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// Whether the copy is to end.
    pub fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Whether anything failed.
    pub fn failed(&self) -> bool {
        self.failures() > 0
    }

    /// How many failures there were.
    pub fn failures(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Counts an entry.
    pub(crate) fn file(&self) {
        self.observer.entry();
    }

    /// Counts copied bytes.
    pub(crate) fn bytes(&self, bytes: u64) {
        self.observer.bytes(bytes);
    }
}

impl fmt::Debug for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Report").field("failures", &self.failures()).finish_non_exhaustive()
    }
}
