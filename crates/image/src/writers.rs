//! One writer at a time for an inode of the target that has several names.
//!
//! Several workers write names of one tree at once. Two names may have one inode, which the target
//! had before the copy. Each worker claims the inode before it empties the file, and writes all of
//! it before it releases the claim. So the file ends up with the contents of one source, never a
//! mixture. The holder of a claim waits for no other worker, so every claim ends.

use super::locks;
use nextent_sync::{Arc, Condvar, Mutex};
use std::collections::HashSet;

/// The inodes that are being written. `[copy.writers]`
pub(super) struct Writers {
    claimed: Mutex<HashSet<u64>>,
    freed: Condvar,
}

/// The right to write one inode; ends when it is dropped.
pub(crate) struct Claim {
    writers: Arc<Writers>,
    ino: u64,
}

impl Writers {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            claimed: Mutex::new(&locks::WRITERS, HashSet::new()),
            freed: Condvar::new(),
        })
    }

    /// Waits until no other worker writes the inode, and claims it.
    pub(super) fn claim(self: &Arc<Self>, ino: u64) -> Claim {
        let mut claimed = self.claimed.lock();
        while !claimed.insert(ino) {
            self.freed.wait(&mut claimed);
        }
        drop(claimed);
        Claim { writers: Arc::clone(self), ino }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.writers.claimed.lock().remove(&self.ino);
        self.writers.freed.notify_all();
    }
}
