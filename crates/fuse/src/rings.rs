//! A mount whose requests come over io_uring: a queue for each core, and threads on that core.
//!
//! A request is handed to a thread of the core that makes it, so no other core is woken for it,
//! and one system call hands the answer in and waits for the next. Several threads serve a core,
//! since one that waits for the disk must not stop the others; one that copies a stream to or from
//! the kernel's cache does it on another core, if one is idle ([`Post`]). What the kernel does not
//! send to queues (forgets, interrupts, all before the queues are there) is read from `/dev/fuse`.
//! While nobody else wants a core its threads count as idle there ([`Sentry`]).
//!
//! No lock on a request's way: threads share the server and the device's descriptor only.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use nextent_fuse_sys::{Reply, Request, Ring};
use nextent_sync::{Arc, Duration, sleep, thread};
use rustix::mount::UnmountFlags;
use zerocopy::{FromBytes, IntoBytes};

use crate::Server;
use crate::cores::{Cores, Post};
use crate::device::Device;
use crate::errno::Errno;
use crate::mount::{check_device, check_point, refused, unmount};
use crate::offer::Offer;
use crate::sentry::{Place, Sentry, Served};
use crate::table;
use crate::transport::{MountError, Setup, Transport, Unmount};
use crate::wire::{self, Agreed, InHeader, Opcode, PAYLOAD};

/// Threads for a core where nothing else is said.
const THREADS: usize = 4;

/// When who found no space tries again.
const LATER: [Duration; 3] = [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(4)];

/// A mount over io_uring.
pub struct RingMount {
    device: Arc<Device>,
    server: Arc<Server>,
    point: PathBuf,
    /// Threads for each core; none if the kernel has taken its offer back.
    threads: Option<usize>,
    /// Threads may count as idle.
    idle: bool,
    cores: Cores,
}

impl RingMount {
    /// Whether the kernel offers this, or would if told to by who may `insist`; or why not.
    /// Nothing is changed for it.
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
        check_point(point)?;
        check_device()
    }

    fn mount(server: Arc<Server>, point: &Path, setup: &Setup) -> Result<Self, MountError> {
        Self::check(point)?;
        let offer = Offer::take(setup.insist)?;
        let cores = Cores::find().map_err(MountError::Refused)?;
        let device = Device::mount(point, setup).map_err(|error| refused(&error, point))?;
        let point = std::fs::canonicalize(point).unwrap_or_else(|_| point.into());
        let agreed = agree(&device, &server, setup, true).inspect_err(|_| abort(&point));
        let rings = agreed.map_err(MountError::Refused)?;
        // The kernel keeps to what it has agreed on with a connection.
        drop(offer);
        table::tune(&point);
        let per_core = |all: usize| all.div_ceil(cores.here.len().max(1)).max(1);
        let threads = rings.then(|| setup.threads.map_or(THREADS, per_core));
        let idle = setup.idle;
        Ok(Self { device: Arc::new(device), server, point, threads, idle, cores })
    }

    fn unmounter(&mut self) -> Unmount {
        let point = self.point.clone();
        Box::new(move || unmount(&point))
    }

    fn serve(self) -> io::Result<()> {
        let mut threads = Vec::new();
        let mut start = |core: Option<u16>, queues: Vec<u16>, place: Option<Place>| {
            let (device, server) = (Arc::clone(&self.device), Arc::clone(&self.server));
            let guard = Abort(Some(self.point.clone()));
            let here = self.cores.here.clone();
            threads.push(thread::spawn(move || {
                let post = core.map(|core| Post::take(core, &here));
                let at = (post, place.map(Place::take));
                serve_queues(&device, &server, &queues, at).map(|()| guard.defuse())
            }));
        };
        let sentry = self.sentry();
        for n in 0..self.threads.unwrap_or(0) {
            for core in &self.cores.here {
                let place = sentry.as_ref().and_then(|sentry| sentry.place(*core, n));
                start(Some(*core), vec![*core], place);
            }
            if !self.cores.elsewhere.is_empty() {
                start(None, self.cores.elsewhere.clone(), None);
            }
        }
        let (device, server) = (Arc::clone(&self.device), Arc::clone(&self.server));
        let late = thread::spawn(move || server.tell_late(|node| device.forget_attributes(node)));
        let read = self.device.serve(&self.server, self.threads.is_some());
        let guard = Abort(Some(self.point.clone()));
        let mut outcome = read.map(|()| guard.defuse());
        for thread in threads {
            let ended =
                thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
            outcome = outcome.and(ended);
        }
        self.server.end_late();
        let _ = late.join();
        outcome
    }
}

impl RingMount {
    /// What has the threads of cores count as idle, if that is wanted and allowed.
    fn sentry(&self) -> Option<Sentry> {
        let threads = self.threads.filter(|_| self.idle)?;
        Sentry::start(&self.cores.here, threads, table::waiting(&self.point))
    }
}

/// Answers the kernel's first request; whether requests come over io_uring, which is so only if
/// they `may`.
pub(crate) fn agree(
    device: &Device,
    server: &Server,
    setup: &Setup,
    may: bool,
) -> io::Result<bool> {
    let (offer, unique) = device.offer()?;
    if !offer.is_known() {
        return Err(io::Error::new(ErrorKind::Unsupported, "the kernel's FUSE is of another kind"));
    }
    let rings = may && offer.has_rings();
    let seconds = server.volume.geometry().inode_size == 128;
    let writes_back = server.writes_back();
    let taken = offer.take(Agreed { acl: setup.acl, rings, seconds, writes_back });
    device.reply(unique, Ok(taken.as_bytes()))?;
    if may {
        device.wait_no_longer()?;
    }
    Ok(rings)
}

/// Answers what comes to `queues` until the mount ends.
fn serve_queues(
    device: &Device,
    server: &Server,
    queues: &[u16],
    (mut post, mut served): (Option<Post>, Option<Served>),
) -> io::Result<()> {
    let mut ring = Ring::new(device.file().as_fd(), queues, PAYLOAD)?;
    ring.serve(|request| {
        let len = request.len;
        let reply = answer(device, server, request);
        // Past the kernel's cache whoever reads waits for each request: nobody goes on meanwhile.
        if let Some(post) = post.as_mut().filter(|_| server.writes_back()) {
            post.moved(len.max(reply.len));
        }
        if let Some(served) = &mut served {
            served.one();
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
    for pause in LATER {
        // What a node lost is told once.
        let told = Opcode::of(header.opcode) == Some(Opcode::GetAttr);
        if told || !matches!(&answered, Err(Errno(libc::ENOSPC))) {
            break;
        }
        // A file that the kernel has forgotten is free once this is known here. One that it has
        // closed without waiting may still be in another thread's hands.
        sleep(pause);
        device.catch_up(server);
        answered = wire::answer(server, &header, op, (&mut *payload, len));
    }
    if let Err(error) = answered
        && wire::is_write_back(header.opcode, op)
    {
        server.lost(header.node, error);
    }
    match answered {
        Ok(len) => Reply { error: 0, len },
        Err(error) => Reply { error: -error.0, len: 0 },
    }
}

/// Ends a mount whose requests would wait for ever, because a thread that serves them has failed.
struct Abort(Option<PathBuf>);

impl Abort {
    fn defuse(mut self) {
        self.0 = None;
    }
}

impl Drop for Abort {
    fn drop(&mut self) {
        if let Some(point) = &self.0 {
            abort(point);
        }
    }
}

/// Has the kernel fail all requests of the mount at `point`, and ends it.
pub(crate) fn abort(point: &Path) {
    if let Some(connection) = table::connection(point) {
        let _ = std::fs::write(connection.join("abort"), "1");
    }
    let how = UnmountFlags::FORCE | UnmountFlags::DETACH;
    if rustix::mount::unmount(point, how).is_err() {
        let _ = unmount(point);
    }
}
