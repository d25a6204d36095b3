//! Errors of data that write(2) had taken.
//!
//! With its write-back cache the kernel takes what is written without asking, and sends it later.
//! When the volume is full by then, an error of that request reaches fsync(2) and msync(2) only:
//! write(2) would go on without end, and what it takes be dropped. So the server keeps the node,
//! and has the kernel forget what it knows of the node's attributes. The next write(2) asks for
//! them, by the opened file as nothing else does while attributes are believed, and is answered the
//! error: once for each time that data was lost, as overwriting a file needs no space.
//!
//! The kernel must not be told by a thread that answers requests: it may wait for these meanwhile.
//! A thread of the transport does, [`Server::tell_late`].

use std::collections::{HashMap, VecDeque};

use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{Condvar, LockClass, Mutex};

use super::Server;
use crate::errno::{Errno, Result};

/// Held for a few instructions.
static LATE: LockClass = LockClass::new("fuse.late", 4);

#[derive(Default)]
struct State {
    /// Nodes of which data was lost, and by which error, that no write has heard of.
    nodes: HashMap<u64, Errno>,
    /// Those of which the kernel is to forget the attributes.
    untold: VecDeque<u64>,
    /// The mount ends.
    over: bool,
}

/// Nodes that lost data.
pub(super) struct Late {
    /// `[fuse.late]`
    state: Mutex<State>,
    /// Something is untold, or the mount ends.
    came: Condvar,
    /// Whether there are any. Relaxed: a request that misses the first is as one that came before.
    any: AtomicBool,
}

impl Late {
    pub(super) fn new() -> Self {
        let state = Mutex::new(&LATE, State::default());
        Self { state, came: Condvar::new(), any: AtomicBool::new(false) }
    }

    /// Forgets a node; its error, if it was there.
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
    /// Data of `node` that the kernel had taken was lost by `error`.
    pub(crate) fn lost(&self, node: u64, error: Errno) {
        let mut state = self.late.state.lock();
        if state.nodes.insert(node, error).is_none() {
            state.untold.push_back(node);
        }
        self.late.any.store(true, Ordering::Relaxed);
        drop(state);
        self.late.came.notify_one();
    }

    /// What a write to `node` is told before it begins.
    pub(crate) fn check_late(&self, node: u64) -> Result<()> {
        self.late.take(node).map_or(Ok(()), Err)
    }

    /// What was lost of `node` is no longer wanted: it was cut, or is gone.
    pub(super) fn drop_late(&self, node: u64) {
        let _ = self.late.take(node);
    }

    /// Has `tell` make the kernel forget the attributes of nodes that lost data, until
    /// [`end_late`](Self::end_late).
    pub(crate) fn tell_late(&self, tell: impl Fn(u64)) {
        let mut state = self.late.state.lock();
        while !state.over {
            match state.untold.pop_front() {
                Some(node) => {
                    drop(state);
                    tell(node);
                    state = self.late.state.lock();
                }
                None => self.late.came.wait(&mut state),
            }
        }
    }

    /// The mount ends.
    pub(crate) fn end_late(&self) {
        self.late.state.lock().over = true;
        self.late.came.notify_all();
    }
}
