//! Memory for chunks, got from the system for many of them at a time.
//!
//! An allocator that grows its heap by the 16 KiB of a chunk asks the system each time, which keeps
//! the other threads of the process from getting pages meanwhile. Here one call is for up to
//! [`MOST`] chunks; what nobody has written to costs no memory. A slab goes when the last of its
//! chunks does. The first slab of a table is one chunk and each next one twice as large as the one
//! before, so a small device stays small.

use super::chunks::CHUNK;
use nextent_sync::{Arc, CachePadded, LockClass, Mutex, Words, current_slot};
use std::ops::Deref;

/// Bytes of one chunk.
pub(super) type Bytes = Words<{ CHUNK / 8 }>;

/// Chunks of a slab at most: a mebibyte.
const MOST: usize = 64;

/// Threads take from so many slabs at a time.
const SOURCES: usize = 16;

static SLAB: LockClass = LockClass::new("device.slab", 905);

/// A chunk of a slab.
pub(super) struct Piece {
    slab: Arc<Box<[Bytes]>>,
    at: usize,
}

impl Deref for Piece {
    type Target = Bytes;
    fn deref(&self) -> &Bytes {
        &self.slab[self.at]
    }
}

/// What is left of a slab.
struct Rest {
    slab: Arc<Box<[Bytes]>>,
    next: usize,
}

/// Gives chunks of zeros.
pub(super) struct Slabs([CachePadded<Mutex<Rest>>; SOURCES]);

impl Slabs {
    pub(super) fn new() -> Self {
        let rest = || Rest { slab: Arc::new(Words::zeros(0)), next: 0 };
        Self(std::array::from_fn(|_| CachePadded::new(Mutex::new(&SLAB, rest()))))
    }

    /// A chunk of zeros, used by nobody.
    pub(super) fn piece(&self) -> Piece {
        let mut rest = self.0[current_slot().index() % SOURCES].lock();
        if rest.next == rest.slab.len() {
            let count = (rest.slab.len() * 2).clamp(1, MOST);
            *rest = Rest { slab: Arc::new(Words::zeros(count)), next: 0 };
        }
        rest.next += 1;
        Piece { slab: rest.slab.clone(), at: rest.next - 1 }
    }
}
