//! ext4 in user space: images made, read and changed from many threads, journaled.
//!
//! [`Volume`] is the door; the modules below it stand on floors and import downwards only:
//! `alloc`, `map`, `dir` and `xattr`, `inode`, `ops` (one POSIX operation a file), `mount`.
#![forbid(unsafe_code)]

#[allow(dead_code)] // parts that only its tests and models use
pub mod alloc;
mod attr;
pub mod check;
mod cred;
pub mod design;
#[allow(dead_code)] // parts that only its tests and models use
mod dir;
mod error;
mod inode;
#[allow(dead_code)] // parts that only its tests and models use
mod map;
pub mod mkfs;
mod mount;
mod ops;
mod policy;
mod recovered;
mod volume;
mod xattr;

pub use attr::{
    Access, Attr, DeviceNo, DirEntry, FallocateMode, FileExtent, NewNode, RenameMode, SeekKind,
    SetAttr, SetTime, Statfs, XattrMode,
};
pub use cred::Cred;
pub use design::{Design, UnknownDesign};
pub use error::{Cause, Error, Result, Truncated};
pub use inode::Shrink;
pub use mount::OpenOptions;
pub use nextent_device::Buffer;
pub use nextent_ondisk::{DiskTime, FileType, Foreign, Geometry, InodeNo, Superblock};
pub use ops::{Attached, Done, File, FillRun, HandleProbe, Queue, Refused, Wait};
pub use policy::ErrorPolicy;
pub use recovered::Recovered;
pub use volume::{CacheUsage, ROOT_INO, Volume};
