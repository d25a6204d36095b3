//! The operations of a mounted file system on a volume.
//!
//! - Each entry sent to the kernel pins its node once, until the kernel forgets it. Its inode
//!   number cannot be reused before.
//! - The engine counts opens, so every file handle is 0.
//! - All calls take `&self` from any number of threads. The only locks are those of files that may
//!   be mapped writable ([`mappable`]).
//! - Names are changed with privilege, since the kernel has checked permissions (with groups and
//!   access control lists) before it asks. Blocks are allocated with the caller's own rights, which
//!   decide about reserved blocks.

mod access_times;
mod data;
mod device_blocks;
mod ioctl;
mod listing;
mod mappable;
mod names;
mod nodes;
mod shutdown;
mod validity;
mod xattrs;

pub use access_times::AccessTimes;
pub(crate) use data::{Reading, Writing};
pub(crate) use listing::{Handed, Listing, Named};
pub(crate) use names::encode_device;
pub(crate) use nodes::Change;
pub(crate) use shutdown::SHUTDOWN;
pub(crate) use validity::Validity;
pub(crate) use xattrs::SettingXattr;

use nextent::Cred;
use nextent::inodes::{Attr, Inodes};
use nextent_num::must_fit;
use nextent_sync::{Arc, OnceLock};

use crate::admission::Admission;
use crate::errno::{Errno, Result, of_sync};
use crate::in_flight::InFlight;
use crate::request_counts::RequestCounts;
use crate::write_out::WriteOuts;

/// The user and group of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl Caller {
    /// Rights for an operation that the kernel has permitted.
    fn named(self, umask: u32) -> Cred {
        let umask = must_fit(umask & 0o777);
        Cred { privileged: true, ..Cred::user(self.uid, self.gid, Vec::new(), umask) }
    }
}

/// The options of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// The reads that update access times.
    pub access_times: AccessTimes,
    /// Which users may enter, and with which rights.
    pub admission: Admission,
    /// `statfs` counts the file system's metadata blocks.
    pub minix_df: bool,
    /// The kernel caches no contents of files, except mapped ones: each read and write is a
    /// request.
    pub uncached: bool,
    /// Bytes on the block device before the volume.
    pub device_offset: u64,
}

/// What a server knows of the kernel that sends it requests.
pub(crate) struct Kernel {
    /// Makes the kernel forget the attributes of a node whose file is open.
    pub(crate) forget_attributes: Box<dyn Fn(u64) + Send + Sync>,
    /// Makes the kernel drop the cached contents of a node. It may wait for requests.
    pub(crate) forget_contents: Arc<dyn Fn(u64) + Send + Sync>,
    /// Requests that set an extended attribute have their short form.
    pub(crate) short_setxattr: bool,
}

/// A volume, and the state that its mount needs.
pub struct Server {
    pub(crate) volume: Arc<Inodes>,
    how: Served,
    /// The reads that update access times now.
    access_times: access_times::Rules,
    /// The result of closing the volume. `umount(2)` waits for it on a mount of a block device.
    ended: OnceLock<std::result::Result<(), String>>,
    mappable: mappable::Mappable,
    shutdown: OnceLock<shutdown::Shutdown>,
    kernel: OnceLock<Kernel>,
    write_outs: Arc<WriteOuts>,
    pub(crate) counts: RequestCounts,
    pub(crate) in_flight: InFlight,
}

impl Server {
    /// Serves `volume`.
    #[must_use]
    pub fn new(volume: Arc<Inodes>, how: Served) -> Self {
        Self {
            volume,
            access_times: access_times::Rules::new(how.access_times),
            how,
            ended: OnceLock::new(),
            mappable: mappable::Mappable::new(),
            shutdown: OnceLock::new(),
            kernel: OnceLock::new(),
            write_outs: Arc::default(),
            counts: RequestCounts::new(),
            in_flight: InFlight::new(),
        }
    }

    /// Sets what is known of the kernel, before the first request is read.
    pub(crate) fn connect(&self, kernel: Kernel) {
        let _ = self.kernel.set(kernel);
    }

    pub(crate) fn has_short_setxattr(&self) -> bool {
        self.kernel.get().is_some_and(|kernel| kernel.short_setxattr)
    }

    /// Makes the kernel ask again for the attributes of a node, after a request whose answer does
    /// not tell it that they changed. The node's file is open until the request is answered.
    fn forget_attributes(&self, node: u64) {
        if let Some(kernel) = self.kernel.get() {
            (kernel.forget_attributes)(node);
        }
    }

    /// Makes the kernel write what processes changed through mappings of a node; false if it may
    /// have unwritten pages still.
    fn write_out(&self, node: u64) -> bool {
        let Some(kernel) = self.kernel.get() else { return false };
        let forget = Arc::clone(&kernel.forget_contents);
        self.write_outs.run(move || forget(node))
    }

    pub(crate) fn admission(&self) -> Admission {
        self.how.admission
    }

    /// The caller's own rights, or root's where the mount gives these to every user.
    fn plain(&self, who: Caller) -> Cred {
        self.how.admission.rights(who.uid, who.gid)
    }

    /// Makes all earlier changes durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.volume.sync().map_err(of_sync)
    }

    /// Closes the volume after the mount has ended. A later call returns the same result.
    ///
    /// # Errors
    /// The text of the first error.
    pub fn end(&self) -> std::result::Result<(), String> {
        let ended = self.ended.get_or_init(|| {
            if self.shutdown.get() == Some(&shutdown::Shutdown::Stopped) {
                return Ok(());
            }
            let abandoned = self.volume.abandon();
            let closed = self.volume.close();
            abandoned.and(closed).map_err(|error| error.to_string())
        });
        ended.clone()
    }

    /// Closes the volume while the kernel may still send requests. Waits for those that use the
    /// volume; later ones fail.
    ///
    /// # Errors
    /// As [`end`](Self::end).
    pub fn end_while_connected(&self) -> std::result::Result<(), String> {
        self.in_flight.close();
        self.end()
    }

    /// Whether reads and writes of a file opened with `flags` bypass the kernel's cache.
    pub(crate) fn is_uncached(&self, flags: i32) -> bool {
        self.how.uncached || flags & libc::O_DIRECT != 0
    }

    /// Whether the kernel keeps contents of files in its page cache.
    pub(crate) fn caches_contents(&self) -> bool {
        !self.how.uncached
    }

    /// Pins a node for the kernel, before it gets the entry. `known` was found by name; none when
    /// the name means another file by now.
    fn enter(&self, known: &Attr) -> Result<Option<Attr>> {
        if known.ino == nextent::inodes::ROOT_INO {
            // The root is never forgotten.
            return Ok(Some(known.clone()));
        }
        match self.volume.pin(known.ino) {
            Ok(attr) if attr.generation == known.generation => Ok(Some(attr)),
            Ok(_) => {
                self.volume.unpin(known.ino, 1)?;
                Ok(None)
            }
            Err(nextent::Error::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// [`enter`](Self::enter) for a new file.
    fn enter_new(&self, made: &Attr) -> Result<Attr> {
        self.enter(made)?.ok_or(Errno(libc::ESTALE))
    }

    /// The kernel forgets `times` of the entries that it got for a node.
    pub fn forget(&self, node: u64, times: u64) {
        if let Ok(ino) = crate::node::inode(node)
            && node != crate::node::KERNEL_ROOT
        {
            // A file that could not be freed is an orphan; the next open of the volume frees it.
            let _ = self.volume.unpin(ino, times);
        }
    }
}
