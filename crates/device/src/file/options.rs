//! Options of an open, and its errors.

use super::direct::Direct;
use super::exclusive::Users;
use super::{CLAIM, FileDevice, LockedBytes, Opened, exclusive, sys};
use nextent_sync::atomic::AtomicBool;
use nextent_sync::{Arc, Mutex};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Options for [`FileDevice::open`]. By default it opens a whole existing file for reading and
/// writing, locked against every other opener.
#[derive(Clone, Debug, Default)]
pub struct FileOptions {
    read_only: bool,
    fall_back: bool,
    unlocked: bool,
    record_locks: bool,
    direct: bool,
    by_threads: bool,
    create: bool,
    offset: u64,
    size: Option<u64>,
    part: Option<String>,
}

impl FileOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens for reading, shared with other readers only.
    pub fn read_only(mut self, yes: bool) -> Self {
        self.read_only = yes;
        self
    }

    /// Whether they open for reading only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Opens read only if the file cannot be opened for writing.
    pub fn fall_back_to_read_only(mut self, yes: bool) -> Self {
        self.fall_back = yes;
        self
    }

    /// Reads without a lock, even while another process writes. Reads may then see partial changes.
    /// Ignored for writing.
    pub fn unlocked(mut self, yes: bool) -> Self {
        self.unlocked = yes;
        self
    }

    /// Opens for writing although other processes have record locks (of `fcntl`) on the file. They
    /// are those of a caller that keeps others away, for example a container runtime.
    pub fn allow_record_locks(mut self, yes: bool) -> Self {
        self.record_locks = yes;
        self
    }

    /// Bypasses the host's page cache (`O_DIRECT`).
    pub fn direct(mut self, yes: bool) -> Self {
        self.direct = yes;
        self
    }

    /// Uses threads for queues, even if the system has io_uring.
    pub fn queue_by_threads(mut self, yes: bool) -> Self {
        self.by_threads = yes;
        self
    }

    /// Creates the file if it does not exist. An existing file is extended, never truncated, to
    /// hold offset and size.
    pub fn create(mut self, yes: bool) -> Self {
        self.create = yes;
        self
    }

    /// The byte of the file at which the device starts.
    pub fn offset(mut self, offset: u64) -> Self {
        self.offset = offset;
        self
    }

    /// The size of the device in bytes. The default is the rest of the file after the offset.
    pub fn size(mut self, size: u64) -> Self {
        self.size = Some(size);
        self
    }

    /// The device is a part of the file, from the offset on, and other parts may have other users.
    /// In messages and in the table of mounts it is the path with `@` and this name. A device with
    /// an offset is a part in any case.
    pub fn part(mut self, name: impl Into<String>) -> Self {
        self.part = Some(name.into());
        self
    }
}

/// The reasons for a refused open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another user, perhaps in this process, has the file open, and one of the two writes.
    #[error("{}: {users}", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
        /// The visible users.
        users: Users,
    },
    /// The kernel or another process has claimed the block device.
    #[error("{}: {users}", path.display())]
    Busy {
        /// The block device.
        path: PathBuf,
        /// The visible users.
        users: Users,
    },
    /// The kernel uses the file or device through a loop device.
    #[error("{}: {}, a loop device over it, is {users}", path.display(), device.display())]
    Attached {
        /// The file.
        path: PathBuf,
        /// The loop device.
        device: PathBuf,
        /// The visible users of the loop device.
        users: Users,
    },
    /// The file is in use without a loop device: as swap space, or by another server.
    #[error("{}: {users}", path.display())]
    Used {
        /// The file.
        path: PathBuf,
        /// The visible users.
        users: Users,
    },
    /// The path is neither a regular file nor a block device.
    #[error("{}: is {kind}, neither a regular file nor a block device", path.display())]
    NotADevice {
        /// The path.
        path: PathBuf,
        /// The file's type, for example "a directory".
        kind: &'static str,
    },
    /// The file ends before offset plus size.
    #[error("{}: holds {len} bytes, but offset {offset} and size {size} need more", path.display())]
    TooShort {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        len: u64,
        /// The requested offset in bytes.
        offset: u64,
        /// The requested size in bytes.
        size: u64,
    },
    /// The system refused the open.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl OpenError {
    /// The kind of the corresponding I/O error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Locked { .. } => ErrorKind::WouldBlock,
            Self::Busy { .. } | Self::Attached { .. } | Self::Used { .. } => {
                ErrorKind::ResourceBusy
            }
            Self::NotADevice { .. } | Self::TooShort { .. } => ErrorKind::InvalidInput,
            Self::Io { source, .. } => source.kind(),
        }
    }
}

impl OpenError {
    /// The error with another path, if it is that of a claim.
    pub(super) fn of(self, path: &Path) -> Self {
        match self {
            Self::Busy { users, .. } => Self::Busy { path: path.into(), users },
            other => other,
        }
    }
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        Self::new(error.kind(), error)
    }
}

/// Opens `path`; see [`FileDevice::open`].
pub(super) fn open(path: &Path, options: &FileOptions) -> Result<FileDevice, OpenError> {
    let (file, block_device, read_only, own) = open_file(path, options)?;
    let shown = exclusive::shown(path, options.part.as_deref());
    let fail = |source| OpenError::Io { path: shown.clone(), source };
    let meta = file.metadata().map_err(fail)?;
    let size = options.size.unwrap_or(u64::MAX - options.offset);
    let locked = LockedBytes {
        bytes: options.offset..options.offset.saturating_add(size),
        is_part: options.offset > 0 || options.part.is_some(),
        part: options.part.clone(),
    };
    let want = exclusive::Wanted {
        record_locks: options.record_locks,
        ..locked.wanted(path, !read_only, options.unlocked)
    };
    let mut claim = exclusive::claim(&file, &meta, &want)?;
    claim.own = own;
    let mut len = sys::length(&file).map_err(fail)?;
    let wanted = options.size.and_then(|size| size.checked_add(options.offset));
    if let Some(end) = wanted
        && options.create
        && !block_device
        && end > len
    {
        file.set_len(end).map_err(fail)?;
        len = end;
    }
    let size = options.size.unwrap_or_else(|| len.saturating_sub(options.offset));
    if options.offset.checked_add(size).is_none_or(|end| end > len) {
        return Err(OpenError::TooShort { path: shown, len, offset: options.offset, size });
    }
    let direct = options.direct.then(|| Direct::new(sys::direct_unit(&file, block_device)));
    let opened = Opened {
        file,
        path: path.into(),
        claim: Mutex::new(&CLAIM, claim),
        unlocked: options.unlocked,
        locked,
        offset: options.offset,
        size,
        read_only: AtomicBool::new(read_only),
        lost: AtomicBool::new(false),
        block_device,
        direct,
        by_threads: options.by_threads,
        flush_failed: AtomicBool::new(false),
    };
    Ok(FileDevice { opened: Arc::new(opened) })
}

/// Opens the file. Returns it, whether it is a block device, whether it is read only, and the claim
/// of a block device that is opened for writing.
fn open_file(
    path: &Path,
    options: &FileOptions,
) -> Result<(File, bool, bool, Option<File>), OpenError> {
    let fail = |source| OpenError::Io { path: path.into(), source };
    // The type is checked before the open, because an open of a fifo or terminal may block or have
    // effects.
    let (mut block_device, mut refuses) = (false, false);
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() => {}
        Ok(meta) if meta.file_type().is_block_device() => {
            (block_device, refuses) = (true, sys::refuses_writes(meta.rdev()));
        }
        Ok(meta) => {
            return Err(OpenError::NotADevice { path: path.into(), kind: kind_of(&meta) });
        }
        Err(error) if error.kind() == ErrorKind::NotFound && options.create => {}
        Err(error) => return Err(fail(error)),
    }
    let attempt = |read_only: bool| {
        if refuses && !read_only {
            return Err(fail(ErrorKind::ReadOnlyFilesystem.into()));
        }
        // The claim precedes the open for writing, which some kernels refuse for a mounted device.
        let claims = block_device && !read_only;
        let own = if claims { exclusive::claim_device(path)? } else { None };
        let create = options.create && !block_device && !read_only;
        let mut how = OpenOptions::new();
        how.read(true).write(!read_only).create(create);
        let file = how.custom_flags(sys::direct_flag(options.direct)).open(path).map_err(fail)?;
        Ok((file, block_device, read_only, own))
    };
    match attempt(options.read_only) {
        Err(OpenError::Io { source, .. })
            if options.fall_back && !options.read_only && is_refusal(&source) =>
        {
            attempt(true)
        }
        result => result,
    }
}

fn kind_of(meta: &std::fs::Metadata) -> &'static str {
    let kind = meta.file_type();
    let kinds = [
        (kind.is_dir(), "a directory"),
        (kind.is_char_device(), "a character device"),
        (kind.is_fifo(), "a fifo"),
        (kind.is_socket(), "a socket"),
    ];
    kinds.into_iter().find(|(is, _)| *is).map_or("a file of another kind", |(_, name)| name)
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
        || error.raw_os_error() == Some(libc::ETXTBSY)
}
