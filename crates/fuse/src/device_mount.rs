//! What the mounts that read `/dev/fuse` themselves share: connecting, unmounting, and ending.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use nextent_sync::Arc;
use nextent_sync::thread::JoinHandle;
use rustix::mount::UnmountFlags;
use zerocopy::IntoBytes;

use crate::Server;
use crate::device::Device;
use crate::fuser_mount::{check_device, check_point, unmount};
use crate::mount_table;
use crate::transport::{MountError, Setup, Unmount};
use crate::wire::Agreed;

/// A connection to the kernel, and the server that answers its requests.
#[derive(Clone)]
pub(crate) struct DeviceMount {
    pub(crate) device: Arc<Device>,
    pub(crate) server: Arc<Server>,
    pub(crate) point: PathBuf,
}

impl DeviceMount {
    pub(crate) fn check(point: &Path) -> Result<(), MountError> {
        check_point(point)?;
        check_device()
    }

    /// Mounts at `point` and answers the kernel's first request. Says, too, whether requests come
    /// over io_uring, which they may only if `rings`. `refused` explains why mounting failed.
    pub(crate) fn connect(
        server: Arc<Server>,
        point: &Path,
        setup: &Setup,
        rings: bool,
        refused: impl FnOnce(io::Error) -> MountError,
    ) -> Result<(Self, bool), MountError> {
        let device = Device::mount(point, setup).map_err(refused)?;
        let point = std::fs::canonicalize(point).unwrap_or_else(|_| point.into());
        let agreed = agree(&device, &server, setup, rings).inspect_err(|_| abort(&point));
        let rings = agreed.map_err(MountError::Refused)?;
        mount_table::tune(&point);
        Ok((Self { device: Arc::new(device), server, point }, rings))
    }

    pub(crate) fn unmounter(&self) -> Unmount {
        let point = self.point.clone();
        Box::new(move || unmount(&point))
    }
}

/// Waits for the threads of a mount; `outcome`, or the first error of a thread.
pub(crate) fn join(
    workers: Vec<JoinHandle<io::Result<()>>>,
    mut outcome: io::Result<()>,
) -> io::Result<()> {
    for worker in workers {
        let ended = worker.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
        outcome = outcome.and(ended);
    }
    outcome
}

/// Answers the kernel's first request; whether requests come over io_uring, which they may only if
/// `rings`.
fn agree(device: &Device, server: &Server, setup: &Setup, rings: bool) -> io::Result<bool> {
    let (offer, unique) = device.offer()?;
    if !offer.is_known() {
        let text = "the kernel speaks another version of the FUSE protocol";
        return Err(io::Error::new(ErrorKind::Unsupported, text));
    }
    let over_rings = rings && offer.has_rings();
    let seconds = server.volume.geometry().inode_size == 128;
    let taken = offer.take(Agreed { acl: setup.acl, rings: over_rings, seconds });
    device.reply(unique, Ok(taken.as_bytes()))?;
    if rings {
        device.set_nonblocking()?;
    }
    Ok(over_rings)
}

/// Makes the kernel fail all requests of the mount at `point`, and unmounts it.
pub(crate) fn abort(point: &Path) {
    if let Some(connection) = mount_table::connection(point) {
        let _ = std::fs::write(connection.join("abort"), "1");
    }
    let how = UnmountFlags::FORCE | UnmountFlags::DETACH;
    if rustix::mount::unmount(point, how).is_err() {
        let _ = unmount(point);
    }
}
