//! Why no image was made.

use super::{AttributesError, EntryError, LayoutError};
use nextent::Error;
use nextent::mkfs::MkfsError;
use nextent_device::OpenError;
use nextent_ondisk::Corrupt;
use std::io;
use std::path::PathBuf;

/// Why an image was not made, or not completely.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The source of the contents cannot be opened.
    #[error("{}: {source}", crate::escape::path(path))]
    Contents {
        /// The source.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// There are no layers of an image of a container.
    #[error("{}: {source}", crate::escape::path(path))]
    Layout {
        /// The layout or archive.
        path: PathBuf,
        /// What is wrong with it.
        source: LayoutError,
    },
    /// The image does not exist, and no size was given to create it.
    #[error("no such file; give a SIZE to create it")]
    NoSize,
    /// The size of a block device, or of a part of a disk, does not follow from the contents.
    #[error("is a block device or a part, which has its size; leave out --free")]
    FixedSize,
    /// The size is larger than the part of the file that the image may have.
    #[error("{size} bytes do not fit in this part of {part} bytes")]
    PartTooSmall {
        /// The size that was asked for.
        size: u64,
        /// The bytes of the part.
        part: u64,
    },
    /// The data of measuring cannot be kept in the image's directory.
    #[error("a temporary file in {}: {source}", crate::escape::path(path))]
    Scratch {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The image cannot be opened or created.
    #[error(transparent)]
    Device(#[from] OpenError),
    /// The file system cannot be made as the options ask, or writing it failed.
    #[error(transparent)]
    Mkfs(#[from] MkfsError),
    /// The file system could not be finished.
    #[error(transparent)]
    Volume(#[from] Error),
    /// The image could not be read or changed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The superblock of the new file system breaks a rule of the format: a defect of this crate.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// A list of attributes asks for what cannot be done.
    #[error(transparent)]
    Attributes(#[from] AttributesError),
    /// `lost+found` did not get its attributes.
    #[error("/lost+found: {0}")]
    LostFound(EntryError),
    /// Attributes by device and inode of the host, for contents that are not the host's files.
    #[error("a state file of fakeroot is about files of a directory, not about {contents}")]
    NoHostFiles {
        /// The contents.
        contents: String,
    },
    /// Entries could not be copied. The observer received each of them.
    #[error("{failures} entries could not be copied")]
    Incomplete {
        /// The number of these entries.
        failures: u64,
    },
}
