//! The messages of a server: mounted, unmounted, damage found, journal stopped.

use crate::log::{self, Level};
use nextent::Error;
use nextent::inodes::Inodes;
use nextent_sync::atomic::{AtomicU64, Ordering};
use nextent_sync::{Arc, Duration, Instant, now};

/// At most so many messages about damage in each [`WINDOW`], as ext4 in Linux.
const MOST: u64 = 10;
const WINDOW: Duration = Duration::from_secs(5);

/// Writes the messages about one mount.
#[derive(Clone)]
pub(super) struct Events {
    image: Arc<str>,
    limit: Arc<RateLimit>,
}

impl Events {
    /// `image` is the name of the image in messages.
    pub(super) fn new(image: &str) -> Self {
        Self { image: image.into(), limit: Arc::new(RateLimit::new()) }
    }

    fn write(&self, level: Level, text: &str) {
        log::write(level, &format!("{}: {text}", self.image));
    }

    pub(super) fn mounted(&self, point: &str, transport: &str, volume: &Inodes) {
        let way = if volume.is_read_only() { "read-only" } else { "read and write" };
        self.write(Level::Info, &format!("mounted on {point}, {way}, over {transport}"));
    }

    pub(super) fn unmounted(&self) {
        self.write(Level::Info, "unmounted and closed");
    }

    /// An operation found damage, or the stopped journal.
    pub(super) fn damage(&self, error: &Error) {
        match self.limit.count(now()) {
            n if n < MOST => self.write(Level::Error, &error.to_string()),
            MOST => self.write(Level::Error, "more errors are not written for some seconds"),
            _ => {}
        }
    }

    /// Writes once that the journal has stopped, even if no operation meets it. `known` is kept
    /// between calls.
    pub(super) fn check_journal(&self, volume: &Inodes, known: &mut bool) {
        if let (false, Some(cause)) = (*known, volume.journal_statistics().error) {
            *known = true;
            let text = format!("the journal has stopped, changes fail from now on: {cause}");
            self.write(Level::Error, &text);
        }
    }
}

/// Counts events in windows of time.
struct RateLimit {
    start: Instant,
    /// The number of the window, in the upper 32 bits, and the events in it.
    window: AtomicU64,
}

impl RateLimit {
    fn new() -> Self {
        Self { start: now(), window: AtomicU64::new(0) }
    }

    /// The number of earlier events in the same window.
    fn count(&self, at: Instant) -> u64 {
        let number = at.saturating_duration_since(self.start).as_secs() / WINDOW.as_secs();
        let mut before = 0;
        let next = |last: u64| {
            before = if last >> 32 == number { last & u64::from(u32::MAX) } else { 0 };
            Some(number << 32 | (before + 1))
        };
        // Relaxed: only the count matters. The closure never gives up.
        let _ = self.window.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_by_window() {
        let limit = RateLimit::new();
        let at = |seconds| limit.count(limit.start + Duration::from_secs(seconds));
        assert_eq!([at(0), at(1), at(4)], [0, 1, 2]);
        assert_eq!([at(5), at(9), at(5)], [0, 1, 2]);
        assert_eq!(at(1000), 0);
    }
}
