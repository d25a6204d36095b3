//! A connection to the kernel: mounting, agreeing on the protocol, and ending. All transports begin
//! here.

use std::io::{self, ErrorKind};
use std::path::Path;

use nextent_sync::Arc;
use nextent_sync::thread::{self, JoinHandle};
use zerocopy::IntoBytes;

use crate::Server;
use crate::attachment::Attachment;
use crate::device::Device;
use crate::mount_table;
use crate::mounting::{mount, refused};
use crate::server::Kernel;
use crate::setup::{MountError, Setup};
use crate::wire::Agreed;

/// A connection, and the server that answers its requests.
pub(crate) struct Connection {
    pub(crate) device: Arc<Device>,
    pub(crate) server: Arc<Server>,
    attachment: Arc<Attachment>,
}

impl Connection {
    /// Mounts at `point` and answers the kernel's first request. Says, too, whether requests come
    /// over io_uring, which they may only if `rings`.
    pub(crate) fn open(
        server: Arc<Server>,
        point: &Path,
        setup: &Setup,
        rings: bool,
    ) -> Result<(Self, bool), MountError> {
        let file = mount(point, setup, server.admission());
        let device = Device::new(file.map_err(|error| refused(&error, point))?);
        let point = std::fs::canonicalize(point).unwrap_or_else(|_| point.into());
        let attachment = Arc::new(Attachment::new(point, device.file()));
        let agreed = agree(&device, &server, setup, rings).inspect_err(|_| {
            attachment.abort();
        });
        let agreed = agreed.map_err(MountError::Refused)?;
        mount_table::tune(attachment.device());
        let device = Arc::new(device);
        let notices = [Arc::downgrade(&device), Arc::downgrade(&device)];
        let [of_attributes, of_contents] = notices;
        server.connect(Kernel {
            forget_attributes: Box::new(move |node| {
                if let Some(device) = of_attributes.upgrade() {
                    device.forget_attributes(node);
                }
            }),
            forget_contents: Arc::new(move |node| {
                if let Some(device) = of_contents.upgrade() {
                    device.forget_contents(node);
                }
            }),
            short_setxattr: agreed.short_setxattr,
        });
        Ok((Self { device, server, attachment }, agreed.rings))
    }

    pub(crate) fn attachment(&self) -> Arc<Attachment> {
        Arc::clone(&self.attachment)
    }

    /// Starts a thread that serves. When it fails, also by a panic, the mount is aborted, since
    /// requests would wait for its answers for ever.
    pub(crate) fn start_worker(
        &self,
        serve: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> JoinHandle<io::Result<()>> {
        let guard = self.abort_on_failure();
        thread::spawn(move || serve().map(|()| guard.defuse()))
    }

    /// A guard that aborts the mount unless it is defused.
    pub(crate) fn abort_on_failure(&self) -> AbortOnFailure {
        AbortOnFailure(Some(self.attachment()))
    }
}

/// Waits for the threads of a mount; the first error of a thread.
pub(crate) fn join(workers: Vec<JoinHandle<io::Result<()>>>) -> io::Result<()> {
    let mut outcome = Ok(());
    for worker in workers {
        let ended = worker.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
        outcome = outcome.and(ended);
    }
    outcome
}

/// The form of the requests of a connection.
struct Form {
    /// Requests come over io_uring.
    rings: bool,
    short_setxattr: bool,
}

/// Answers the kernel's first request. Later ones may come over io_uring only if `rings`.
fn agree(device: &Device, server: &Server, setup: &Setup, rings: bool) -> io::Result<Form> {
    let (offer, unique) = device.offer()?;
    if !offer.is_known() {
        let text = "the kernel's version of the FUSE protocol is too old or too new (needs Linux \
            5.4)";
        return Err(io::Error::new(ErrorKind::Unsupported, text));
    }
    let idmapped = server.admission().idmapped;
    if idmapped && !offer.has_idmapped() {
        let text = "idmap: the kernel does not map the users of FUSE mounts (needs Linux 6.12)";
        return Err(io::Error::new(ErrorKind::Unsupported, text));
    }
    let over_rings = rings && offer.has_rings();
    let seconds = server.volume.geometry().inode_size == 128;
    let taken = offer.take(Agreed {
        acl: setup.acl,
        rings: over_rings,
        seconds,
        idmapped,
        reads_seen: server.sees_reads(),
    });
    device.reply(unique, Ok(taken.as_bytes()))?;
    Ok(Form { rings: over_rings, short_setxattr: !offer.has_long_setxattr() })
}

/// Aborts a mount when dropped, unless it is defused.
pub(crate) struct AbortOnFailure(Option<Arc<Attachment>>);

impl AbortOnFailure {
    pub(crate) fn defuse(mut self) {
        self.0 = None;
    }
}

impl Drop for AbortOnFailure {
    fn drop(&mut self) {
        if let Some(attachment) = &self.0 {
            attachment.abort();
        }
    }
}
