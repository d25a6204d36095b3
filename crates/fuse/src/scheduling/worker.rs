//! What the threads of a group do around each request.
//!
//! The crate that reads requests has threads of its own, so each thread registers at its first
//! request and unregisters as it ends.

use std::cell::RefCell;

use nextent_sync::atomic::{AtomicUsize, Ordering};
use nextent_sync::{Arc, OnceLock};

use super::client_follower::ClientFollower;
use super::worker_group::WorkerGroup;
use super::{ServingWorker, Shared, Watchdog, WorkerSlot};
use crate::stream::Stream;

/// Consecutive requests of the kernel itself that no longer count as part of a client's requests.
const KERNEL_REQUESTS: u32 = 8;

thread_local! {
    /// The calling thread's registration.
    static WORKER: RefCell<Option<Worker>> = const { RefCell::new(None) };
}

/// Where threads of a mount register; there are no slots before the watchdog starts.
#[derive(Clone, Default)]
pub(crate) struct WorkerSlots(Arc<OnceLock<FreeSlots>>);

struct FreeSlots {
    shared: Arc<Shared>,
    next: AtomicUsize,
}

/// A registered thread of a group.
struct Worker {
    served: ServingWorker,
    client: u32,
    changes: u64,
    /// Consecutive requests of the kernel itself.
    from_kernel: u32,
    stream: Stream,
    /// While this thread is the leader.
    follower: Option<ClientFollower>,
}

/// A request, from before it is answered until after that. When this is dropped the thread may
/// sleep.
#[derive(Default)]
pub(crate) struct RequestScope {
    bytes: usize,
}

impl WorkerSlots {
    /// Makes the threads of a mount part of the group that `watchdog` watches.
    pub(crate) fn connect(&self, watchdog: &Watchdog) {
        let free = FreeSlots { shared: Arc::clone(&watchdog.shared), next: AtomicUsize::new(0) };
        let _ = self.0.set(free);
    }

    /// The calling thread begins a request of `client`; none without a watchdog.
    pub(crate) fn begin_request(&self, client: u32) -> Option<RequestScope> {
        let free = self.0.get()?;
        WORKER.with_borrow_mut(|worker| {
            if worker.is_none() {
                *worker = free.worker();
            }
            worker.as_mut()?.begin(client);
            Some(RequestScope::default())
        })
    }
}

impl FreeSlots {
    fn worker(&self) -> Option<Worker> {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let (client, changes, from_kernel) = (0, 0, 0);
        let (stream, follower) = (Stream::default(), None);
        // There are more threads than slots only if threads are added.
        self.shared.cores[0].workers.get(n)?;
        let served = WorkerSlot { shared: Arc::clone(&self.shared), at: (0, n) }.register();
        Some(Worker { served, client, changes, from_kernel, stream, follower })
    }
}

impl RequestScope {
    /// The request or its answer carries `bytes`.
    pub(crate) fn set_bytes(&mut self, bytes: usize) {
        self.bytes = bytes;
    }
}

impl Drop for RequestScope {
    fn drop(&mut self) {
        WORKER.with_borrow_mut(|worker| {
            if let Some(worker) = worker {
                worker.end(self.bytes);
            }
        });
    }
}

impl Worker {
    fn group(&self) -> Option<&WorkerGroup> {
        self.served.shared.group()
    }

    fn begin(&mut self, client: u32) {
        // Client 0 is the kernel itself, which writes times and pages back between a client's
        // requests, or a process of another container.
        self.from_kernel = if client == 0 { self.from_kernel.saturating_add(1) } else { 0 };
        if client != self.client && (client != 0 || self.from_kernel > KERNEL_REQUESTS) {
            (self.client, self.changes) = (client, self.changes + 1);
        }
        let n = self.served.at.1;
        let Some((group, locator)) = &self.served.shared.group else { return };
        group.note(n).begin(self.client, self.changes);
        if !group.is_leader(n) {
            self.follower = None;
            return;
        }
        let follower = self.follower.get_or_insert_with(|| {
            locator.keep_on(group.anywhere());
            ClientFollower::new()
        });
        if let Some(core) = follower.step(self.client, locator) {
            group.while_leader(n, || follower.move_to(core, group.anywhere(), locator));
        }
    }

    fn end(&mut self, bytes: usize) {
        let stream = self.stream.moved(bytes);
        self.served.count_request();
        if let Some(group) = self.group() {
            group.note(self.served.at.1).end(stream);
            group.wait_until_needed(self.served.at.1);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(group) = self.group() {
            group.close();
        }
    }
}
