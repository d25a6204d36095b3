//! The volume by paths, in the shape of [`std::fs`].
//!
//! [`Volume`] has the operations of `std::fs` as methods, [`File`] is an open file, [`ReadDir`]
//! iterates over a directory. All of it is a thin layer over [`inodes`](crate::inodes): a call
//! finds the inode that a path means and runs one operation of that level.
//!
//! Invariants:
//! - No path leaves the volume. The root is its own parent, and an absolute symbolic link starts at
//!   the volume's root.
//! - Between the look-up and the operation the inode is held (open or pinned), so that its number
//!   cannot become another file's.
//! - The last reference to a volume closes it: a [`Volume`], an open [`File`] or a [`ReadDir`].
//!
//! Locks: a [`File`] holds `file.position` (rank 84) during a read, a write or a seek at its
//! position. Positioned calls take no lock of this module.

mod attributes;
mod copy;
mod file;
mod file_options;
mod metadata;
mod names;
mod path;
mod read_dir;
mod remove;
mod volume;
mod xattrs;

pub use file::File;
pub use file_options::FileOptions;
pub use metadata::{FileTimes, Metadata, Permissions};
pub use read_dir::{DirEntry, ReadDir};
pub use volume::Volume;
