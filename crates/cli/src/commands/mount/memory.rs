//! A thread that frees cached memory while a volume is mounted, and logs the end of its journal.
//!
//! | when | what is freed |
//! |---|---|
//! | the system, or this control group, is short of memory (PSI, where the kernel has it) | everything that is not in use |
//! | the kernel has forgotten a quarter of the files it knew | everything that was not used since |
//! | at the end of each period | what exceeds the bound because it was in use before |
//!
//! Requests keep the caches within their bounds themselves. No request waits for this thread.

use super::events::Events;
use nextent::inodes::{Inodes, Shrink};
use nextent_sync::{Arc, Duration, Weak, memory_pressure, release_memory, sleep, thread};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;

/// The period of the thread.
const PERIOD: Timespec = Timespec { tv_sec: 4, tv_nsec: 0 };
/// The same without PSI.
const PERIOD_ALONE: Duration = Duration::from_secs(4);
/// Periods after the kernel has forgotten files in which unused blocks are freed: the first period
/// only marks them.
const ROUNDS: u32 = 2;
/// Freed bytes after which the C library is to return memory to the system.
const WORTH: usize = 1 << 20;

/// Starts the thread, which ends some time after the volume is dropped. If it cannot start, only
/// the bounds of the caches limit memory.
pub(super) fn watch(volume: &Arc<Inodes>, events: Events) {
    let volume = Arc::downgrade(volume);
    let watch = move || {
        let pressure = memory_pressure();
        Watch { volume, events, stopped: false, pressure, known: 0, rounds: 0 }.run();
    };
    let _ = thread::Builder::new().name("nextent-memory".to_owned()).spawn(watch);
}

struct Watch {
    volume: Weak<Inodes>,
    events: Events,
    /// The end of the journal was logged.
    stopped: bool,
    /// Polls ready (`POLLPRI`) when memory is short.
    pressure: Option<File>,
    /// The highest count of inodes in memory or pinned since the kernel last forgot many.
    known: usize,
    /// Periods of freeing that are left.
    rounds: u32,
}

impl Watch {
    fn run(mut self) {
        loop {
            let short = self.wait();
            let Some(volume) = self.volume.upgrade() else { return };
            self.events.check_journal(&volume, &mut self.stopped);
            self.look(&volume, short);
        }
    }

    /// Waits for a period; true if memory became short before.
    fn wait(&mut self) -> bool {
        let Some(pressure) = &self.pressure else {
            sleep(PERIOD_ALONE);
            return false;
        };
        let mut event = [PollFd::new(pressure, PollFlags::PRI)];
        match poll(&mut event, Some(&PERIOD)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => false,
            Ok(_) if event[0].revents().contains(PollFlags::PRI) => true,
            // The control group is gone, or the kernel has no PSI.
            _ => {
                self.pressure = None;
                false
            }
        }
    }

    fn look(&mut self, volume: &Inodes, short: bool) {
        let before = volume.cache_usage();
        let known = before.inodes + before.pinned;
        // The kernel may forget files over many periods, so compare with the highest count.
        self.known = self.known.max(known);
        if known < self.known - self.known / 4 {
            (self.rounds, self.known) = (ROUNDS, known);
        }
        let how = match self.rounds {
            _ if short => Shrink::All,
            0 => Shrink::ToBound,
            _ => Shrink::Unused,
        };
        self.rounds = self.rounds.saturating_sub(1);
        volume.shrink_caches(how);
        let after = volume.cache_usage();
        let less = before.bytes().saturating_sub(after.bytes());
        if short || how == Shrink::Unused || less >= WORTH {
            release_memory();
        }
    }
}
