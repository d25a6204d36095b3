//! A mount whose requests come over io_uring: a queue for each core, and threads on that core.
//!
//! A thread of the core that makes a request answers it, so no other core is woken. One system call
//! hands in the answer and waits for the next request. Several threads serve a core, since a thread
//! that waits for the disk must not stop the others. A thread that copies a stream to or from the
//! kernel's cache does so on another core, if one is idle ([`CorePinning`]).
//!
//! The kernel sends some requests to `/dev/fuse` instead: forgets, interrupts, and all requests
//! before the queues are there. The mount's own thread reads those.
//!
//! While no other process wants a core its threads are in the idle class there ([`Watchdog`]).
//!
//! No request takes a lock: threads share only the server and the device's descriptor.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use nextent_fuse_sys::{Reply, Request, Ring};
use nextent_sync::{Arc, Duration, sleep, thread};
use zerocopy::FromBytes;

use crate::Server;
use crate::cores::{CorePinning, Cores};
use crate::device::Device;
use crate::device_mount::{DeviceMount, abort, join};
use crate::errno::Errno;
use crate::fuser_mount::refused;
use crate::mount_table;
use crate::offer::Offer;
use crate::scheduling::{ServingWorker, Watchdog, WorkerSlot};
use crate::transport::{MountError, Setup, Transport, Unmount};
use crate::wire::{self, InHeader, PAYLOAD};

/// Threads for a core by default.
const THREADS: usize = 4;

/// Pauses before a request that found no space is tried again.
const RETRY_AFTER: [Duration; 3] =
    [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(4)];

/// A mount over io_uring.
pub struct RingMount {
    mount: DeviceMount,
    /// Threads for each core; none if the kernel has withdrawn its offer.
    threads: Option<usize>,
    /// Threads may enter the idle class.
    idle: bool,
    cores: Cores,
}

impl RingMount {
    /// Whether the kernel offers io_uring, or would after a caller that may `insist` has turned it
    /// on; or why not. Changes nothing.
    ///
    /// # Errors
    /// [`MountError::NoRings`].
    pub fn offered(insist: bool) -> Result<(), MountError> {
        Offer::check(insist)?;
        nextent_fuse_sys::usable().map_err(MountError::NoRings)
    }
}

impl Transport for RingMount {
    fn check(point: &Path) -> Result<(), MountError> {
        DeviceMount::check(point)
    }

    fn mount(server: Arc<Server>, point: &Path, setup: &Setup) -> Result<Self, MountError> {
        Self::check(point)?;
        let offer = Offer::take(setup.insist)?;
        let cores = Cores::find().map_err(MountError::Refused)?;
        let explain = |error| refused(&error, point);
        let (mount, rings) = DeviceMount::connect(server, point, setup, true, explain)?;
        // The kernel keeps to what it has agreed on with a connection.
        drop(offer);
        let per_core = |all: usize| all.div_ceil(cores.here.len().max(1)).max(1);
        let threads = rings.then(|| setup.threads.map_or(THREADS, per_core));
        Ok(Self { mount, threads, idle: setup.idle, cores })
    }

    fn unmounter(&mut self) -> Unmount {
        self.mount.unmounter()
    }

    fn serve(self) -> io::Result<()> {
        let mut threads = Vec::new();
        let mut start = |core: Option<u16>, queues: Vec<u16>, slot: Option<WorkerSlot>| {
            let DeviceMount { device, server, point } = self.mount.clone();
            let guard = AbortOnFailure(Some(point));
            let here = self.cores.here.clone();
            threads.push(thread::spawn(move || {
                let pinning = core.map(|core| CorePinning::take(core, &here));
                let at = (pinning, slot.map(WorkerSlot::register));
                serve_queues(&device, &server, &queues, at).map(|()| guard.defuse())
            }));
        };
        let watchdog = self.watchdog();
        for n in 0..self.threads.unwrap_or(0) {
            for core in &self.cores.here {
                let slot = watchdog.as_ref().and_then(|watchdog| watchdog.slot(*core, n));
                start(Some(*core), vec![*core], slot);
            }
            if !self.cores.elsewhere.is_empty() {
                start(None, self.cores.elsewhere.clone(), None);
            }
        }
        let read = self.mount.device.serve(&self.mount.server, self.threads.is_some());
        let guard = AbortOnFailure(Some(self.mount.point.clone()));
        join(threads, read.map(|()| guard.defuse()))
    }
}

impl RingMount {
    /// The watchdog of the threads of cores, if it is wanted and allowed.
    fn watchdog(&self) -> Option<Watchdog> {
        let threads = self.threads.filter(|_| self.idle)?;
        Watchdog::start(&self.cores.here, threads, mount_table::waiting(&self.mount.point))
    }
}

/// Answers the requests of `queues` until the mount ends.
fn serve_queues(
    device: &Device,
    server: &Server,
    queues: &[u16],
    (mut pinning, mut served): (Option<CorePinning>, Option<ServingWorker>),
) -> io::Result<()> {
    let mut ring = Ring::new(device.file().as_fd(), queues, PAYLOAD)?;
    ring.serve(|request| {
        let len = request.len;
        let reply = answer(device, server, request);
        // Past the kernel's cache a reader waits for each request, so moving gains nothing.
        if let Some(pinning) = pinning.as_mut().filter(|_| server.caches_contents()) {
            pinning.moved(len.max(reply.len));
        }
        if let Some(served) = &mut served {
            served.count_request();
        }
        reply
    })
}

fn answer(device: &Device, server: &Server, request: Request<'_>) -> Reply {
    let Request { header, op, payload, len } = request;
    let Ok((header, _)) = InHeader::read_from_prefix(header) else {
        return Reply { error: -libc::EINVAL, len: 0 };
    };
    let mut answered = wire::answer(server, &header, op, (&mut *payload, len));
    for pause in RETRY_AFTER {
        if !matches!(&answered, Err(Errno(libc::ENOSPC))) {
            break;
        }
        // The kernel may have forgotten a file whose FORGET is not read yet: its blocks are free
        // then. Another thread may still be closing a file.
        sleep(pause);
        device.catch_up(server);
        answered = wire::answer(server, &header, op, (&mut *payload, len));
    }
    match answered {
        Ok(len) => Reply { error: 0, len },
        Err(error) => Reply { error: -error.0, len: 0 },
    }
}

/// Aborts the mount when a thread that serves it fails, since its requests would wait for ever.
struct AbortOnFailure(Option<PathBuf>);

impl AbortOnFailure {
    fn defuse(mut self) {
        self.0 = None;
    }
}

impl Drop for AbortOnFailure {
    fn drop(&mut self) {
        if let Some(point) = &self.0 {
            abort(point);
        }
    }
}
