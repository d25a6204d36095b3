//! ext4 in user space: images made, read and changed from many threads, journaled.
//!
//! [`Volume`](volume) is the door; the modules below it stand on floors and import downwards only:
//! `alloc`, `map`, `inode`, `dir` and `xattr`, `ops` (one POSIX operation a file), `mount`.
#![forbid(unsafe_code)]
#![allow(dead_code)] // floors land before their callers

pub mod alloc;
mod attr;
mod cred;
mod dir;
mod error;
mod map;
pub mod mkfs;
mod mount;
mod xattr;

pub use attr::{
    Access, Attr, DeviceNo, DirEntry, FallocateMode, FileExtent, FileType, NewNode, RenameMode,
    SeekKind, SetAttr, SetTime, Statfs, XattrMode,
};
pub use cred::Cred;
pub use error::{Cause, Error, Result};
pub use mount::{ErrorPolicy, OpenOptions};
