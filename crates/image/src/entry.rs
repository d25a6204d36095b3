//! The identity, kind and attributes of a file that is copied.

use nextent::{DeviceNo, DiskTime};
use std::ops::Range;

/// The identity of a file: two names with the same identity are hard links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileId {
    /// The host's device number, or the number of an open image, which no device has.
    pub volume: u64,
    /// The inode.
    pub ino: u64,
}

/// The kind of a file, with a link's target or a device's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link and its target.
    Symlink(Vec<u8>),
    /// A character device.
    Char(DeviceNo),
    /// A block device.
    Block(DeviceNo),
    /// A pipe with a name.
    Fifo,
    /// A socket.
    Socket,
}

/// An extended attribute: name and value.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// Attributes of one file.
#[derive(Clone, Debug)]
pub struct Meta {
    /// Equal for all names of one file.
    pub id: FileId,
    /// The kind.
    pub kind: Kind,
    /// Permission bits (`07777`).
    pub mode: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The number of its names.
    pub links: u64,
    /// Length in bytes.
    pub size: u64,
    /// Allocated bytes; fewer than `size` if there are holes.
    pub allocated: u64,
    /// The time of the last access.
    pub atime: DiskTime,
    /// The time of the last change of its contents.
    pub mtime: DiskTime,
    /// Empty unless the copy keeps them.
    pub xattrs: Vec<Xattr>,
    /// A pipe or a device that is copied as a file: it is read to its end, and `size` is ignored.
    pub stream: bool,
}

impl Meta {
    /// The data ranges of a file without holes.
    pub fn whole(&self) -> Vec<Range<u64>> {
        (self.size > 0).then_some(0..self.size).into_iter().collect()
    }

    /// The attributes of a pipe or a device whose contents are copied.
    pub fn into_stream(self) -> Self {
        Self { kind: Kind::File, size: 0, allocated: 0, stream: true, ..self }
    }

    /// The mode, before the umask, of a copy that keeps permissions only. As cp(1), it keeps the
    /// sticky bit of directories, and all bits of pipes and devices.
    pub fn plain_mode(&self) -> u16 {
        match self.kind {
            Kind::File => self.mode & 0o777,
            Kind::Dir => self.mode & 0o1777,
            _ => self.mode,
        }
    }
}
