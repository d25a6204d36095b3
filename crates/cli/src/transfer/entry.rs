//! The identity, kind and attributes of a file that is copied.

use nextent::{DeviceNo, DiskTime};
use std::ops::Range;

/// The identity of a file: two names with the same identity are hard links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    /// The host's device number, or the number of an open image, which no device has.
    pub(crate) volume: u64,
    /// The inode.
    pub(crate) ino: u64,
}

/// The kind of a file, with a link's target or a device's numbers.
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
    /// Allocated bytes; fewer than `size` if there are holes.
    pub(crate) allocated: u64,
    pub(crate) atime: DiskTime,
    pub(crate) mtime: DiskTime,
    /// Empty unless the copy keeps them.
    pub(crate) xattrs: Vec<Xattr>,
    /// A pipe or a device that is copied as a file: it is read to its end, and `size` is ignored.
    pub(crate) stream: bool,
}

impl Meta {
    /// The data ranges of a file without holes.
    pub(crate) fn whole(&self) -> Vec<Range<u64>> {
        (self.size > 0).then_some(0..self.size).into_iter().collect()
    }

    /// The attributes of a pipe or a device whose contents are copied.
    pub(crate) fn into_stream(self) -> Self {
        Self { kind: Kind::File, size: 0, allocated: 0, stream: true, ..self }
    }

    /// The mode, before the umask, of a copy that keeps permissions only. As cp(1), it keeps the
    /// sticky bit of directories, and all bits of pipes and devices.
    pub(crate) fn plain_mode(&self) -> u16 {
        match self.kind {
            Kind::File => self.mode & 0o777,
            Kind::Dir => self.mode & 0o1777,
            _ => self.mode,
        }
    }
}
