//! The volume by inode numbers, for servers and other callers that keep their own names.
//!
//! [`Inodes`] has one method for each POSIX operation. A method takes the number of an inode, or of
//! a directory and a name in it, and the [`Cred`](crate::Cred) of the user on whose behalf it acts.
//! A server keeps a number valid by [`Inodes::pin`] or [`Inodes::open_file`]; without either, the
//! number may become another file's once its last name is gone.
//!
//! ```
//! use nextent::inodes::{Inodes, NewNode, ROOT_INO};
//! use nextent::{Cred, Result};
//!
//! /// Makes a directory and a file in it.
//! fn fill(volume: &Inodes) -> Result<()> {
//!     let root = Cred::root();
//!     let dir = volume.mkdir(&root, ROOT_INO, b"etc", 0o755)?;
//!     let file = volume.mknod(&root, dir.ino, b"hosts", NewNode::Regular, 0o644)?;
//!     volume.write(&root, file.ino, 0, b"127.0.0.1 localhost\n")?;
//!     volume.fsync(file.ino)
//! }
//! # use std::sync::Arc;
//! # let device = Arc::new(nextent::MemoryDevice::new(4 << 20));
//! # nextent::mkfs::make(&*device, &nextent::mkfs::MkfsOptions::default())?;
//! # let volume = Inodes::open(device, &nextent::OpenOptions::new())?;
//! # fill(&volume)?;
//! # volume.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use nextent_device::Buffer;
pub use nextent_ondisk::InodeNo;
pub use nextent_store::JournalStatistics;

pub use crate::attr::{
    Access, Attr, DirEntry, FallocateMode, FileExtent, Name, NewNode, RenameMode, SeekKind,
    SetAttr, SetTime, XattrMode,
};
pub use crate::inode::Shrink;
pub use crate::open::{Applied, Staged};
pub use crate::ops::{
    Attached, CacheUsage, Done, FillRun, Inodes, OpenFile, Queue, ROOT_INO, Refused, Wait,
};
