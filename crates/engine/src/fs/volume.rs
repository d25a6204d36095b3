//! The volume: opening, closing, whose behalf it acts on.

use std::fmt;
use std::path::Path;

use nextent_device::{BlockDevice, FileDevice};
use nextent_sync::{Arc, thread};

use crate::error::{Error, Result};
use crate::open::OpenOptions;
use crate::ops::Inodes;
use crate::{Cred, Statfs};

/// Permission bits that new files do not get unless the caller chose another user or umask.
const UMASK: u16 = 0o022;

/// An open ext4 volume, used by paths.
///
/// A `Volume` is a cheap handle: its clones, and the views that [`as_user`](Self::as_user) makes,
/// share one open file system. All of them may be used from many threads at once.
///
/// Paths are bytes, absolute or relative to the root; there is no current directory. Symbolic links
/// are followed as Linux follows them, at most 40 for one path, and never lead out of the volume.
/// The methods are named after their counterparts in [`std::fs`] and behave like them.
///
/// A new volume acts as the superuser with umask `022`.
///
/// # Durability
///
/// A change is durable after [`sync`](Self::sync), [`File::sync_all`](crate::File::sync_all) or
/// [`close`](Self::close). When the last handle and the last open file are dropped the volume is
/// closed too, but then no caller sees an error: call `close` to see it.
///
/// # Examples
///
/// ```no_run
/// use nextent::Volume;
///
/// let volume = Volume::open("disk.img")?;
/// volume.create_dir_all("/etc/app")?;
/// volume.write("/etc/app/config", "threads = 8\n")?;
/// for entry in volume.read_dir("/etc")? {
///     println!("{}", entry?.path().display());
/// }
/// volume.close()?;
/// # Ok::<(), nextent::Error>(())
/// ```
#[derive(Clone)]
pub struct Volume {
    pub(super) shared: Arc<Shared>,
    pub(super) cred: Arc<Cred>,
}

/// The open file system that all handles share. Closed when dropped.
pub(super) struct Shared {
    pub(super) inodes: Inodes,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !thread::panicking() {
            // `Volume::close` reports errors; here no caller is left to see one.
            let _ = self.inodes.close();
        }
    }
}

impl Volume {
    /// Opens the image or block device at `path` for reading and writing, with the default
    /// [`OpenOptions`]. The file is locked against other writers while the volume is open.
    ///
    /// # Errors
    /// [`Error::OpenDevice`] when the file cannot be opened or is in use; else as
    /// [`open_device`](OpenOptions::open_device).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::new().open(path)
    }

    /// The same volume with the rights of another user.
    ///
    /// # Examples
    ///
    /// ```
    /// use nextent::{Cred, Error, Volume};
    ///
    /// /// Whether the user 1000 may read the file.
    /// fn may_read(volume: &Volume, path: &str) -> nextent::Result<bool> {
    ///     let user = volume.as_user(Cred::user(1000, 1000, vec![], 0o022));
    ///     match user.open_file(path) {
    ///         Ok(_) => Ok(true),
    ///         Err(Error::Access) => Ok(false),
    ///         Err(error) => Err(error),
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn as_user(&self, cred: Cred) -> Self {
        Self { shared: Arc::clone(&self.shared), cred: Arc::new(cred) }
    }

    /// The user on whose behalf this handle acts.
    #[must_use]
    pub fn cred(&self) -> &Cred {
        &self.cred
    }

    /// The inode level of the same volume.
    #[must_use]
    pub fn inodes(&self) -> &Inodes {
        &self.shared.inodes
    }

    /// Makes all changes durable, puts them in place and marks the volume clean. Later changes fail
    /// with [`Error::ReadOnly`], through this handle and all others.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Aborted`]: the next open recovers what was synced.
    pub fn close(&self) -> Result<()> {
        self.inodes().close()
    }

    /// Makes all changes durable and the image clean, and refuses changes from then on, through
    /// this handle and all others. [`make_writable`](Self::make_writable) undoes it.
    ///
    /// # Errors
    /// As [`Inodes::make_read_only`].
    pub fn make_read_only(&self) -> Result<()> {
        self.inodes().make_read_only()
    }

    /// Allows changes of a volume that was made read-only, or was opened for reading only.
    ///
    /// # Errors
    /// As [`Inodes::make_writable`].
    pub fn make_writable(&self) -> Result<()> {
        self.inodes().make_writable()
    }

    /// Makes all earlier changes durable.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Aborted`].
    pub fn sync(&self) -> Result<()> {
        self.inodes().sync()
    }

    /// How large and how full the volume is.
    ///
    /// # Errors
    /// None at present; group descriptors may have to be read.
    pub fn statfs(&self) -> Result<Statfs> {
        self.inodes().statfs()
    }
}

/// A volume that acts as the superuser with umask `022`.
impl From<Inodes> for Volume {
    fn from(inodes: Inodes) -> Self {
        let cred = Cred { umask: UMASK, ..Cred::root() };
        Self { shared: Arc::new(Shared { inodes }), cred: Arc::new(cred) }
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shared, cred } = self;
        f.debug_struct("Volume").field("inodes", &shared.inodes).field("cred", cred).finish()
    }
}

impl OpenOptions {
    /// Opens the image or block device at `path`.
    ///
    /// # Errors
    /// As [`Volume::open`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use nextent::OpenOptions;
    ///
    /// let volume = OpenOptions::new().read_only(true).open("disk.img")?;
    /// print!("{}", volume.read_to_string("/etc/hosts")?);
    /// # Ok::<(), nextent::Error>(())
    /// ```
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Volume> {
        let how = nextent_device::FileOptions::new().read_only(self.is_read_only());
        let device = FileDevice::open(path.as_ref(), &how).map_err(Error::OpenDevice)?;
        self.open_device(Arc::new(device))
    }

    /// Opens the volume on `device`.
    ///
    /// # Errors
    /// [`Error::Foreign`] when the device holds something else than ext4, [`Error::Unsupported`]
    /// for features that this crate does not know, [`Error::Truncated`] when the device is too
    /// small, [`Error::Corrupt`], [`Error::Io`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use nextent::mkfs::{self, MkfsOptions};
    /// use nextent::{MemoryDevice, OpenOptions};
    ///
    /// let device = Arc::new(MemoryDevice::new(16 << 20));
    /// mkfs::make(&*device, &MkfsOptions::default())?;
    /// let volume = OpenOptions::new().open_device(device)?;
    /// volume.write("/hello", "world")?;
    /// assert_eq!(volume.read("/hello")?, b"world");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_device(&self, device: Arc<dyn BlockDevice>) -> Result<Volume> {
        Inodes::open(device, self).map(Volume::from)
    }
}
