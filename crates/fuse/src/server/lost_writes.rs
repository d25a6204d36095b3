//! Reports data that write(2) had taken and the server could not store.
//!
//! With its write-back cache the kernel takes data without asking the server, and sends it later.
//! When the volume is full by then, the error of that request reaches only fsync(2) and msync(2):
//! write(2) would go on without end, and the kernel would drop the data.
//!
//! 1. The server records the node and its error.
//! 2. It makes the kernel forget the node's attributes.
//! 3. The next write(2) asks for them, and names the opened file; no other request does so while
//!    attributes are cached. The server answers with the error.
//!
//! Each loss is reported once, since overwriting needs no space and may go on.
//!
//! A thread that answers requests must not do step 2, for which the kernel may wait for requests. A
//! thread of the transport does it, in [`Server::invalidate_lost`].

use std::collections::{HashMap, VecDeque};

use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{Condvar, LockClass, Mutex};

use super::Server;
use crate::errno::{Errno, Result};

/// Held for a few instructions.
static LOST_WRITES: LockClass = LockClass::new("fuse.lost_writes", 4);

#[derive(Default)]
struct LostWritesState {
    /// Nodes that lost data, each with the error that no write has reported yet.
    nodes: HashMap<u64, Errno>,
    /// Nodes whose attributes the kernel is to forget.
    to_invalidate: VecDeque<u64>,
    /// The mount has ended.
    ended: bool,
}

/// Nodes that lost data.
pub(super) struct LostWrites {
    /// \[fuse.lost_writes\]
    state: Mutex<LostWritesState>,
    /// `to_invalidate` has a node, or the mount has ended.
    changed: Condvar,
    /// Whether `nodes` has any. Relaxed: a request that misses the first counts as an earlier one.
    any: AtomicBool,
}

impl LostWrites {
    pub(super) fn new() -> Self {
        let state = Mutex::new(&LOST_WRITES, LostWritesState::default());
        Self { state, changed: Condvar::new(), any: AtomicBool::new(false) }
    }

    /// Removes a node; its error, if there is one.
    fn take(&self, node: u64) -> Option<Errno> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let mut state = self.state.lock();
        let error = state.nodes.remove(&node);
        self.any.store(!state.nodes.is_empty(), Ordering::Relaxed);
        error
    }
}

impl Server {
    /// Records that data of `node` was lost by `error`.
    pub(crate) fn record_lost(&self, node: u64, error: Errno) {
        let mut state = self.lost_writes.state.lock();
        if state.nodes.insert(node, error).is_none() {
            state.to_invalidate.push_back(node);
        }
        self.lost_writes.any.store(true, Ordering::Relaxed);
        drop(state);
        self.lost_writes.changed.notify_one();
    }

    /// The error of a write to `node`, before it begins.
    pub(crate) fn check_lost(&self, node: u64) -> Result<()> {
        self.lost_writes.take(node).map_or(Ok(()), Err)
    }

    /// Drops the error of `node`: the file was truncated, or is gone.
    pub(super) fn clear_lost(&self, node: u64) {
        let _ = self.lost_writes.take(node);
    }

    /// Calls `invalidate` for each node that loses data, to make the kernel forget its attributes,
    /// until [`stop_invalidating`](Self::stop_invalidating).
    pub(crate) fn invalidate_lost(&self, invalidate: impl Fn(u64)) {
        let mut state = self.lost_writes.state.lock();
        while !state.ended {
            match state.to_invalidate.pop_front() {
                Some(node) => {
                    drop(state);
                    invalidate(node);
                    state = self.lost_writes.state.lock();
                }
                None => self.lost_writes.changed.wait(&mut state),
            }
        }
    }

    pub(crate) fn stop_invalidating(&self) {
        self.lost_writes.state.lock().ended = true;
        self.lost_writes.changed.notify_all();
    }
}
