//! A queue whose transfers are performed by threads with blocking calls.
//!
//! It serves systems without io_uring, and direct files whose unit is larger than a sector, where a
//! write of a partial unit excludes all others. A submitted transfer starts a thread if no thread
//! is idle, up to the queue's depth and at most [`MOST`]. The threads end with the queue.

use crate::BlockDevice;
use crate::queue::{Completed, DeviceQueue, Transfer};
use nextent_sync::{Arc, Condvar, LockClass, Mutex, thread};
use std::collections::VecDeque;

static POOL_STATE: LockClass = LockClass::new("device.pool", 880);

/// The largest number of threads of one queue.
const MOST: usize = 16;

#[derive(Default)]
struct PoolState {
    waiting: VecDeque<Transfer>,
    done: Vec<Completed>,
    /// Threads that wait for work.
    idle: usize,
    /// Whether the queue was dropped.
    over: bool,
}

struct Shared<D> {
    device: Arc<D>,
    /// [state] Not held during a transfer.
    state: Mutex<PoolState>,
    work: Condvar,
    completed: Condvar,
}

/// Transfers in flight on a device, and the threads that perform them.
pub(super) struct Pool<D: BlockDevice + 'static> {
    shared: Arc<Shared<D>>,
    threads: Vec<thread::JoinHandle<()>>,
    most: usize,
    in_flight: usize,
}

impl<D: BlockDevice + 'static> Pool<D> {
    pub(super) fn new(device: Arc<D>, depth: usize) -> Self {
        let shared = Shared {
            device,
            state: Mutex::new(&POOL_STATE, PoolState::default()),
            work: Condvar::new(),
            completed: Condvar::new(),
        };
        let most = depth.clamp(1, MOST);
        Self { shared: Arc::new(shared), threads: Vec::new(), most, in_flight: 0 }
    }
}

impl<D: BlockDevice> Shared<D> {
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(mut transfer) = state.waiting.pop_front() {
                drop(state);
                let result = transfer.perform(&*self.device);
                state = self.state.lock();
                state.done.push(Completed { transfer, result });
                self.completed.notify_one();
            } else if state.over {
                return;
            } else {
                state.idle += 1;
                self.work.wait(&mut state);
                state.idle -= 1;
            }
        }
    }
}

impl<D: BlockDevice + 'static> DeviceQueue for Pool<D> {
    fn submit(&mut self, transfer: Transfer) {
        self.in_flight += 1;
        let mut state = self.shared.state.lock();
        state.waiting.push_back(transfer);
        let more = state.waiting.len() > state.idle;
        drop(state);
        if more && self.threads.len() < self.most {
            let shared = Arc::clone(&self.shared);
            self.threads.push(thread::spawn(move || shared.serve()));
        } else {
            self.shared.work.notify_one();
        }
    }

    fn complete(&mut self, least: usize, done: &mut Vec<Completed>) {
        let least = least.min(self.in_flight);
        let mut state = self.shared.state.lock();
        while state.done.len() < least {
            self.shared.completed.wait(&mut state);
        }
        self.in_flight -= state.done.len();
        done.append(&mut state.done);
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl<D: BlockDevice + 'static> Drop for Pool<D> {
    fn drop(&mut self) {
        self.shared.state.lock().over = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // The panic was reported where it happened. Its transfer is lost with the queue.
            let _ = thread.join();
        }
    }
}
