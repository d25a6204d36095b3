//! Files that may be mapped writable: those open for reading and writing.
//!
//! Through a shared mapping a process changes pages in the kernel's cache without a request. Until
//! the kernel writes these pages, the volume has holes where the file has data. A mapping keeps its
//! open file, and the kernel writes all pages before it releases that file. So the volume has all
//! data of a file that is not in this table.
//!
//! Only opens for reading and writing and their releases take a lock, one of several by node.

use std::collections::HashMap;

use nextent_num::to_usize;
use nextent_sync::{LockClass, Mutex};

/// Held for a few instructions.
static MAPPABLE: LockClass = LockClass::new("fuse.mappable", 4);

const SHARDS: u64 = 64;

/// The number of opens for reading and writing of each node, where it is not zero.
pub(super) struct Mappable {
    /// \[fuse.mappable\]
    shards: Vec<Mutex<HashMap<u64, u64>>>,
}

fn counts(flags: i32) -> bool {
    flags & libc::O_ACCMODE == libc::O_RDWR
}

impl Mappable {
    pub(super) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(&MAPPABLE, HashMap::new())).collect();
        Self { shards }
    }

    fn shard(&self, node: u64) -> &Mutex<HashMap<u64, u64>> {
        &self.shards[to_usize(node % SHARDS)]
    }

    /// Counts an open with `flags`.
    pub(super) fn opened(&self, node: u64, flags: i32) {
        if counts(flags) {
            *self.shard(node).lock().entry(node).or_default() += 1;
        }
    }

    /// Counts the release of a file that was opened with `flags`.
    pub(super) fn released(&self, node: u64, flags: i32) {
        if counts(flags) {
            let mut shard = self.shard(node).lock();
            if let Some(opens) = shard.get_mut(&node) {
                *opens -= 1;
                if *opens == 0 {
                    shard.remove(&node);
                }
            }
        }
    }

    /// Whether the node is open for reading and writing.
    pub(super) fn has(&self, node: u64) -> bool {
        self.shard(node).lock().contains_key(&node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_for_reading_and_writing_are_counted() {
        let mappable = Mappable::new();
        for flags in [libc::O_RDONLY, libc::O_WRONLY, libc::O_WRONLY | libc::O_APPEND] {
            mappable.opened(5, flags);
            assert!(!mappable.has(5), "{flags:#o}");
        }
        mappable.opened(5, libc::O_RDWR);
        mappable.opened(5, libc::O_RDWR | libc::O_CREAT);
        mappable.released(5, libc::O_RDONLY);
        mappable.released(5, libc::O_RDWR);
        assert!(mappable.has(5) && !mappable.has(5 + SHARDS));
        mappable.released(5, libc::O_RDWR);
        assert!(!mappable.has(5));
    }
}
