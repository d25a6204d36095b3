//! What a copy carries of one file.

use nextent::{DeviceNo, DiskTime};
use std::ops::Range;

/// Tells files apart: two names with the same identity are names of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    /// The host's device number, or a number of an open image that no device has.
    pub(crate) volume: u64,
    /// The inode.
    pub(crate) ino: u64,
}

/// What a file is, with what there is of it besides attributes and contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Dir,
    Symlink(Vec<u8>),
    Char(DeviceNo),
    Block(DeviceNo),
    Fifo,
    Socket,
}

/// An extended attribute: name and value.
pub(crate) type Xattr = (Vec<u8>, Vec<u8>);

/// Attributes of one file.
#[derive(Clone, Debug)]
pub(crate) struct Meta {
    pub(crate) id: FileId,
    pub(crate) kind: Kind,
    /// Permission bits (`07777`).
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) links: u64,
    pub(crate) size: u64,
    /// Bytes that are allocated; less than `size` tells of holes.
    pub(crate) allocated: u64,
    pub(crate) atime: DiskTime,
    pub(crate) mtime: DiskTime,
    /// Empty unless the copy keeps them.
    pub(crate) xattrs: Vec<Xattr>,
    /// A pipe or a device that is copied as a file: read to its end, whatever `size` says.
    pub(crate) stream: bool,
}

impl Meta {
    /// The ranges of data of a file without holes.
    pub(crate) fn whole(&self) -> Vec<Range<u64>> {
        (self.size > 0).then_some(0..self.size).into_iter().collect()
    }

    /// The same of a file that is copied as what it contains.
    pub(crate) fn into_stream(self) -> Self {
        Self { kind: Kind::File, size: 0, allocated: 0, stream: true, ..self }
    }

    /// The mode that a file has if only permissions are kept, before the umask: as cp(1), which
    /// keeps the sticky bit of directories, and all bits of pipes and devices.
    pub(crate) fn plain_mode(&self) -> u16 {
        match self.kind {
            Kind::File => self.mode & 0o777,
            Kind::Dir => self.mode & 0o1777,
            _ => self.mode,
        }
    }
}
