//! Buffers for contents that are read before their blocks are assigned.
//!
//! There are few, so that read-ahead is bounded and stays in the processor's cache. No thread waits
//! for a buffer: without one, contents are read later.

use super::super::locks;
use nextent_sync::{Arc, Mutex};
use std::ops::Deref;

/// Bytes of a buffer.
const SIZE: usize = 256 << 10;
/// The most buffers.
const MOST: usize = 64;

struct PoolState {
    /// The last used buffer is last.
    free: Vec<Box<[u8]>>,
    made: usize,
}

/// The buffers of a copy.
pub(super) struct Pool {
    state: Mutex<PoolState>,
}

impl Pool {
    pub(super) fn new() -> Arc<Self> {
        let state = PoolState { free: Vec::new(), made: 0 };
        Arc::new(Self { state: Mutex::new(&locks::POOL, state) })
    }

    /// An unused buffer, if there is one.
    pub(super) fn take(self: &Arc<Self>) -> Option<Buffer> {
        let mut state = self.state.lock();
        let old = state.free.pop();
        if old.is_none() && state.made == MOST {
            return None;
        }
        state.made += usize::from(old.is_none());
        drop(state);
        let bytes = old.unwrap_or_else(|| vec![0; SIZE].into());
        Some(Buffer { bytes, pool: Arc::clone(self) })
    }
}

/// A buffer, which returns to its pool when it is dropped.
pub(super) struct Buffer {
    pub(super) bytes: Box<[u8]>,
    pool: Arc<Pool>,
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.state.lock().free.push(std::mem::take(&mut self.bytes));
    }
}
