//! The calls by which a copy reports its progress and its failures to the program.

use super::EntryError;

/// Receives the events of a copy. All threads of the copy call it.
///
/// `()` ignores all events.
///
/// ```
/// use nextent_image::{Observer, Problem};
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// #[derive(Default)]
/// struct Printer {
///     entries: AtomicU64,
/// }
///
/// impl Observer for Printer {
///     fn entry(&self) {
///         self.entries.fetch_add(1, Ordering::Relaxed);
///     }
///
///     fn problem(&self, problem: &Problem<'_>) {
///         eprintln!("{}: {}", problem.path, problem.error);
///     }
/// }
/// ```
pub trait Observer: Sync {
    /// An entry is being copied: a file, a directory, a link or a special file.
    fn entry(&self) {}

    /// Contents of this many bytes were copied.
    fn bytes(&self, bytes: u64) {
        let _ = bytes;
    }

    /// An entry failed, or something about it is worth a note.
    fn problem(&self, problem: &Problem<'_>) {
        let _ = problem;
    }
}

impl Observer for () {}

/// An event about one entry.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// The path of the entry, [escaped](crate::escape) for a terminal.
    pub path: &'a str,
    /// What happened.
    pub error: &'a EntryError,
}
