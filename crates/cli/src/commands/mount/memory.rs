//! A thread that gives memory back while a volume is mounted.
//!
//! | when | what leaves memory |
//! |---|---|
//! | the system, or our control group, is short of memory (PSI, where the kernel has it) | all that nobody uses |
//! | the kernel has forgotten a quarter of the files it knew | what was not used since |
//! | at the end of each period | what exceeds the bound because it could not leave before |
//!
//! Requests keep the caches within their bound themselves; nothing here is waited for.

use nextent::inodes::{Inodes, Shrink};
use nextent_sync::{Arc, Duration, Weak, memory_pressure, release_memory, sleep, thread};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;

/// How often the thread looks.
const PERIOD: Timespec = Timespec { tv_sec: 4, tv_nsec: 0 };
/// The same where time is all that wakes it.
const PERIOD_ALONE: Duration = Duration::from_secs(4);
/// Periods after the kernel has forgotten files in which unused blocks leave: the first only says
/// which they are.
const ROUNDS: u32 = 2;
/// Bytes from which on the C library is asked to give free memory back.
const WORTH: usize = 1 << 20;

/// Starts the thread. It ends some time after the volume; without it only the bounds hold.
pub(super) fn watch(volume: &Arc<Inodes>) {
    let volume = Arc::downgrade(volume);
    let watch = move || Watch { volume, pressure: memory_pressure(), known: 0, rounds: 0 }.run();
    let _ = thread::Builder::new().name("nextent-memory".to_owned()).spawn(watch);
}

struct Watch {
    volume: Weak<Inodes>,
    /// Ready with priority when memory is short.
    pressure: Option<File>,
    /// The most inodes that were in memory or pinned since the kernel last forgot many.
    known: usize,
    /// Rounds that are left.
    rounds: u32,
}

impl Watch {
    fn run(mut self) {
        loop {
            let short = self.wait();
            let Some(volume) = self.volume.upgrade() else { return };
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
            // The control group is gone, or there is no such thing after all.
            _ => {
                self.pressure = None;
                false
            }
        }
    }

    fn look(&mut self, volume: &Inodes, short: bool) {
        let before = volume.cache_usage();
        let known = before.inodes + before.pinned;
        // Forgetting may take many periods: compared with the most since it was last noticed.
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
