#![doc = include_str!("../README.md")]
//!
//! # Design
//!
//! The modules stand in layers and import downwards only, which `cargo xtask tidy` checks: `alloc`,
//! `map`, `dir` and `xattr`, `inode`, `ops` (one POSIX operation a file), `open`, `fs`.
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]
// What the seams lend to the laboratory is reachable in its builds only.
#![cfg_attr(not(feature = "lab"), allow(unreachable_pub))]

#[allow(missing_debug_implementations)] // reachable by the laboratory only
mod alloc;
mod attr;
pub mod check;
mod checked;
mod checksums;
mod cred;
mod dir;
mod error;
mod fs;
mod inode;
pub mod inodes;
mod journal_change;
#[cfg(feature = "lab")]
#[doc(hidden)]
pub mod lab_seams;
mod map;
pub mod mkfs;
mod mmp;
mod observer;
mod open;
mod ops;
mod policy;
mod recovered;
pub mod resize;
mod xattr;

pub use attr::{Access, DeviceNo, FallocateMode, NewNode, RenameMode, Statfs};
pub use checked::mark_checked;
pub use checksums::{change_uuid, uuid_seeds_checksums};
pub use cred::Cred;
pub use error::{Cause, Error, Result, Truncated};
pub use fs::{DirEntry, File, FileOptions, FileTimes, Metadata, Permissions, ReadDir, Volume};
pub use journal_change::{add_journal, remove_journal};
pub use mmp::{MultiMount, MultiMountUse, clear_mmp, multi_mount_use};
pub use nextent_device as device;
pub use nextent_device::{BlockDevice, FileDevice, MemoryDevice};
pub use nextent_ondisk::{DiskTime, FileType, Foreign, Geometry, Superblock};
pub use open::OpenOptions;
pub use policy::ErrorPolicy;
pub use recovered::Recovered;

// The names of the inode level, for the modules below.
use attr::{Attr, FileExtent, SeekKind, SetAttr, SetTime, XattrMode};
use ops::ROOT_INO;
