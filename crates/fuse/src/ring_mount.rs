//! A mount whose requests come over io_uring: a queue for each core, and threads on that core.
//!
//! A thread of the core that makes a request answers it, so no other core is woken. One system call
//! hands in the answer and waits for the next request. Several threads serve a core, since a thread
//! that waits for the disk must not stop the others. A thread that copies a stream to or from the
//! kernel's cache does so on another core, if one is idle ([`CorePinning`]).
//!
//! The kernel sends some requests to `/dev/fuse` instead: forgets, interrupts, and requests from
//! before the queues are there. A thread of its own reads those ([`ForgetReader`]).
//!
//! Threads begin to answer when all of them have registered ([`Registration`]). After that no
//! request takes a lock: threads share only the server and the device's descriptor.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use nextent_fuse_sys::{Reply, Request, Ring};
use nextent_sync::{Arc, now};
use zerocopy::FromBytes;

use crate::Server;
use crate::attachment::Attachment;
use crate::connection::{Connection, join};
use crate::cores::{CorePinning, Cores, Queues};
use crate::device::Device;
use crate::device_mount::DeviceMount;
use crate::forget_reader::ForgetReader;
use crate::mounting;
use crate::offer::Offer;
use crate::registration::{Registration, Turn};
use crate::setup::{MountError, Setup};
use crate::space_wait::{Waiters, is_full};
use crate::transport::Transport;
use crate::wire::{self, InHeader, PAYLOAD};

/// Threads for a core by default.
const THREADS: usize = 4;

/// A mount over io_uring.
pub struct RingMount {
    mount: DeviceMount,
    /// None if the kernel has withdrawn its offer: requests come over `/dev/fuse` then.
    rings: Option<Rings>,
}

/// The queues of a mount and their threads.
struct Rings {
    cores: Cores,
    /// Threads for each core.
    threads: usize,
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
        mounting::check(point)
    }

    fn mount(server: Arc<Server>, point: &Path, setup: &Setup) -> Result<Self, MountError> {
        Self::check(point)?;
        let offer = Offer::take(setup.insist)?;
        let cores = Cores::find().map_err(MountError::Refused)?;
        let (connection, agreed) = Connection::open(server, point, setup, true)?;
        // The kernel keeps to what it has agreed on with a connection.
        drop(offer);
        let per_core = |all: usize| all.div_ceil(cores.here.len().max(1)).max(1);
        let threads = setup.threads.map_or(THREADS, per_core);
        let rings = agreed.then_some(Rings { cores, threads });
        Ok(Self { mount: DeviceMount::over(connection, setup.threads), rings })
    }

    fn attachment(&self) -> Arc<Attachment> {
        self.mount.attachment()
    }

    fn serve(self) -> io::Result<()> {
        match self.rings {
            Some(rings) => rings.serve(&self.mount.connection),
            None => self.mount.serve(),
        }
    }
}

impl Rings {
    fn serve(&self, connection: &Connection) -> io::Result<()> {
        let guard = connection.abort_on_failure();
        let reader = Arc::new(ForgetReader::new(Arc::clone(&connection.device))?);
        guard.defuse();
        let queues: Vec<_> = (0..self.threads).flat_map(|_| self.cores.queues()).collect();
        let last = queues.iter().filter(|queues| queues.turn == Turn::Last).count();
        let registration = Arc::new(Registration::new(queues.len() - last, last));
        // One thread of a core reads on while the others wait for space.
        let per_core = self.cores.queues().len();
        let waiters: Vec<_> = (0..per_core).map(|_| Waiters::new(self.threads - 1)).collect();
        let mut workers = Vec::new();
        for (queues, waiters) in queues.into_iter().zip(waiters.iter().cycle()) {
            let thread = RingThread {
                device: Arc::clone(&connection.device),
                reader: Arc::clone(&reader),
                server: Arc::clone(&connection.server),
                here: self.cores.here.clone(),
                waiters: Arc::clone(waiters),
            };
            let registration = Arc::clone(&registration);
            workers.push(connection.start_worker(move || thread.serve(&queues, &registration)));
        }
        let server = Arc::clone(&connection.server);
        workers.push(connection.start_worker(move || reader.serve(&server)));
        join(workers)
    }
}

/// What a thread that serves queues needs.
struct RingThread {
    device: Arc<Device>,
    reader: Arc<ForgetReader>,
    server: Arc<Server>,
    /// The cores that it may run on while it moves a stream.
    here: Vec<u16>,
    /// The requests that wait for space in threads of the same core.
    waiters: Arc<Waiters>,
}

impl RingThread {
    /// Answers the requests of `queues` until the mount ends.
    fn serve(&self, queues: &Queues, registration: &Registration) -> io::Result<()> {
        let mut pinning = queues.core.map(|core| CorePinning::take(core, &self.here));
        let registered = registration.run(queues.turn, || {
            let mut ring = Ring::new(self.device.file().as_fd(), &queues.numbers, PAYLOAD)?;
            ring.register().map(|()| ring)
        })?;
        // Without a ring another thread has failed, and the mount ends.
        let Some(mut ring) = registered else { return Ok(()) };
        ring.serve(|request| {
            let len = request.len;
            let reply = self.answer(request);
            // Past the kernel's cache a reader waits for each request, so moving gains nothing.
            if let Some(pinning) = pinning.as_mut().filter(|_| self.server.caches_contents()) {
                pinning.moved(len.max(reply.len));
            }
            reply
        })
    }

    fn answer(&self, request: Request<'_>) -> Reply {
        let Request { header, op, payload, len } = request;
        let Ok((header, _)) = InHeader::read_from_prefix(header) else {
            return Reply { error: -libc::EINVAL, len: 0 };
        };
        let begin = now();
        let mut answer = || wire::answer(&self.server, &header, op, (&mut *payload, len));
        let mut answered = answer();
        if is_full(&answered) {
            answered = self.waiters.retry(&self.server, || {
                // The kernel may have forgotten a file whose FORGET is not read yet.
                self.reader.catch_up(&self.server);
                answer()
            });
        }
        wire::count(&self.server, header.opcode, begin, (len, &answered));
        match answered {
            Ok(len) => Reply { error: 0, len },
            Err(error) => Reply { error: -error.0, len: 0 },
        }
    }
}
