//! Errors of the engine: public kinds over private causes.
//!
//! A caller matches on the kind. A person reads the text, which names operation, block and inode
//! where the cause knows them. Programs find the cause by `source()`.

mod os;

use std::fmt;
use std::ops::Deref;

use nextent_device::{BlockDevice, OpenError};
use nextent_ondisk::{Corrupt, Foreign, Geometry};

/// The result of an engine call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed.
///
/// The text of an error is one complete line, with its cause. `source()` is that cause, for
/// programs. [`errno`](Self::errno) is Linux's number, and an [`io::Error`](std::io::Error) is made
/// by `From`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error("input/output error: {0}")]
    Io(#[source] Cause),
    /// Data on the volume breaks a rule of the format.
    #[error("{0}")]
    Corrupt(#[source] Cause),
    /// The image or block device could not be opened, or is in use.
    #[error("{0}")]
    OpenDevice(#[source] OpenError),
    /// The device holds no ext superblock.
    #[error("{0}")]
    Foreign(Foreign),
    /// The device ends before the volume does.
    #[error("{0}")]
    Truncated(Truncated),
    /// The image or the file needs a feature that this crate does not have.
    #[error("not supported: {0}")]
    Unsupported(#[source] Cause),
    /// No block is left.
    #[error("no space left on the volume")]
    NoSpace,
    /// No inode is left.
    #[error("no inodes left on the volume")]
    NoInodes,
    /// The directory's index is full, whatever space the volume has.
    #[error(
        "the directory is full: its index has all its levels (volumes with the feature large_dir \
         have one more)"
    )]
    DirectoryFull,
    /// The file has no room for the extended attribute, whatever space the volume has.
    #[error("the file has no room for the attribute")]
    AttributesFull,
    /// The operation needs more journal blocks than a transaction may have.
    #[error("the journal is too small for the operation: {0}")]
    JournalTooSmall(#[source] Cause),
    /// The journal stopped after an earlier error. The volume can no longer be changed.
    #[error("the journal was aborted: {0}")]
    Aborted(#[source] Cause),
    /// The volume is open for reading only.
    #[error("the volume is read-only")]
    ReadOnly,
    /// The volume cannot be made writable while it is open.
    #[error("the file system stays read-only: {0}")]
    StaysReadOnly(#[source] Cause),
    /// Another node uses the volume, by its multiple mount protection.
    #[error("in use by another node: {0}")]
    OtherNode(#[source] Cause),
    /// No such name or inode.
    #[error("no such file or directory")]
    NotFound,
    /// The name is taken.
    #[error("file exists")]
    Exists,
    /// The operation needs a directory.
    #[error("not a directory")]
    NotDir,
    /// The operation does not take a directory.
    #[error("is a directory")]
    IsDir,
    /// The directory has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// Permission bits or the access control list forbid it.
    #[error("permission denied")]
    Access,
    /// The file is not open for reading, or not for writing.
    #[error("the file is not open for this operation")]
    BadDescriptor,
    /// The contents, or the names in the directory, are encrypted.
    #[error("required key not available")]
    NoKey,
    /// The operation needs the owner or a privileged user, or a flag of the inode forbids it.
    #[error("operation not permitted")]
    Perm,
    /// A name, a path or a symbolic link's target is too long.
    #[error("name too long")]
    NameTooLong,
    /// The path leads through too many symbolic links.
    #[error("too many levels of symbolic links")]
    Loop,
    /// Source and target belong to different volumes or project trees.
    #[error("cross-device link")]
    CrossDevice,
    /// The file would become larger than its block map or the format allows.
    #[error("file too large")]
    TooBig,
    /// An argument is out of range or contradicts another.
    #[error("invalid argument")]
    Invalid,
    /// The contents of the file are not UTF-8.
    #[error("the file does not contain valid UTF-8")]
    NotText,
    /// The file has no such extended attribute, or no data after the offset.
    #[error("no data available")]
    NoData,
    /// The result does not fit into the caller's buffer.
    #[error("result too large")]
    Range,
    /// The object is in use.
    #[error("resource busy")]
    Busy,
    /// The link count cannot grow.
    #[error("too many links")]
    TooManyLinks,
    /// The operation would block, which the caller does not allow.
    #[error("operation would block")]
    WouldBlock,
    /// The file or the volume does not support the operation.
    #[error("operation not supported")]
    NotSupported,
}

/// What lies behind an error: an error of a lower layer, or a sentence.
///
/// It dereferences to that error, whose type is not part of this crate's promise.
#[derive(Debug)]
pub struct Cause {
    error: Box<dyn std::error::Error + Send + Sync>,
    /// Whether the volume has recorded the damage.
    noted: bool,
}

impl Cause {
    /// A cause from a sentence or an error.
    pub fn new(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { error: cause.into(), noted: false }
    }

    pub(crate) fn error(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        &*self.error
    }

    /// Marks the cause as recorded; true in the first call.
    pub(crate) fn note(&mut self) -> bool {
        !std::mem::replace(&mut self.noted, true)
    }
}

/// A volume that is larger than its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// Blocks of the volume.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of the device.
    pub device: u64,
}

impl Truncated {
    /// Bytes of the volume that the device does not have.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.blocks.saturating_mul(self.block_size.into()).saturating_sub(self.device)
    }

    /// The finding, if a volume of `geometry` is larger than its `device`.
    pub(crate) fn of(geometry: &Geometry, device: u64) -> Option<Self> {
        let Geometry { blocks_count: blocks, block_size, .. } = *geometry;
        let found = Self { blocks, block_size, device };
        (blocks > device >> geometry.block_bits).then_some(found)
    }
}

impl fmt::Display for Truncated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { blocks, block_size, device } = self;
        let bytes = blocks.saturating_mul((*block_size).into());
        write!(
            f,
            "cut short: the file system has {bytes} bytes ({blocks} blocks of {block_size}), the \
             image or device only {device}; {} bytes are missing",
            self.missing()
        )
    }
}

impl Deref for Cause {
    type Target = dyn std::error::Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.error
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error {
    /// Whether the volume is full, so that writes to other files fail, too.
    #[must_use]
    pub fn is_full_volume(&self) -> bool {
        matches!(self, Self::NoSpace | Self::NoInodes)
    }

    /// A device without an ext superblock.
    pub(crate) fn foreign(device: &dyn BlockDevice) -> Self {
        let read = &mut |at, buf: &mut [u8]| device.read_at(at, buf).is_ok();
        Self::Foreign(Foreign::identify(device.size(), read))
    }

    /// An image or file that needs `what`.
    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported(Cause::new(what.into()))
    }
}

impl From<nextent_store::Error> for Error {
    fn from(error: nextent_store::Error) -> Self {
        use nextent_store::Error as Store;
        let cause = Cause::new(error.clone());
        match error {
            Store::Aborted(_) => Self::Aborted(cause),
            Store::Corrupt { .. } => Self::Corrupt(cause),
            Store::Unsupported(_) => Self::Unsupported(cause),
            Store::ReadOnly => Self::ReadOnly,
            Store::TooBig { .. } => Self::JournalTooSmall(cause),
            _ => Self::Io(cause),
        }
    }
}

impl From<Corrupt> for Error {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(Cause::new(corrupt))
    }
}
