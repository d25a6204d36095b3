//! Attributes of files, and the arguments of operations.

use nextent_ondisk::{DiskTime, FileType, InodeNo};

/// A device number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceNo {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// The attributes of a file, as stat(2) returns them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The inode.
    pub ino: InodeNo,
    /// Differs between two files that had the same inode number.
    pub generation: u32,
    /// The type.
    pub kind: FileType,
    /// Permission bits with set-id and sticky bits (`07777`).
    pub mode: u16,
    /// The number of names (hard links).
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Project, for project quotas.
    pub project: u32,
    /// Length in bytes.
    pub size: u64,
    /// Space used, in units of 512 bytes.
    pub sectors: u64,
    /// The device that a device node stands for.
    pub device: DeviceNo,
    /// Last read.
    pub atime: DiskTime,
    /// Last change of the contents.
    pub mtime: DiskTime,
    /// Last change of anything.
    pub ctime: DiskTime,
    /// Creation, if the inode is large enough to hold it.
    pub crtime: Option<DiskTime>,
    /// The inode flags that lsattr(1) shows.
    pub flags: u32,
    /// Grows with each change.
    pub version: u64,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The present time.
    Now,
    /// The given time.
    At(DiskTime),
}

/// Attributes to set; `None` leaves one as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits (`07777`).
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes: truncates, or extends with a hole.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<SetTime>,
    /// Last change of the contents.
    pub mtime: Option<SetTime>,
    /// Last change of anything, for servers with their own clock and for copies of trees.
    pub ctime: Option<DiskTime>,
    /// Creation.
    pub crtime: Option<DiskTime>,
    /// The flags that chattr(1) can set.
    pub flags: Option<u32>,
    /// Project.
    pub project: Option<u32>,
}

/// The kinds of use that a caller asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Read a file, or list a directory.
    pub read: bool,
    /// Write a file, or change the entries of a directory.
    pub write: bool,
    /// Execute a file, or look up names in a directory.
    pub execute: bool,
}

impl Access {
    /// Reading.
    pub const READ: Self = Self { read: true, write: false, execute: false };
    /// Writing.
    pub const WRITE: Self = Self { read: false, write: true, execute: false };
    /// Executing or searching.
    pub const EXECUTE: Self = Self { read: false, write: false, execute: true };
    /// Reading and writing.
    pub const READ_WRITE: Self = Self { read: true, write: true, execute: false };
    /// Changing entries of a directory.
    pub const CHANGE_DIR: Self = Self { read: false, write: true, execute: true };

    /// The bits `rwx`, as one octal digit of a mode.
    #[must_use]
    pub fn bits(self) -> u16 {
        let bit = |set: bool, bit: u16| if set { bit } else { 0 };
        bit(self.read, 4) | bit(self.write, 2) | bit(self.execute, 1)
    }
}

/// The type of a new file that is no directory and no symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NewNode {
    /// An empty file.
    Regular,
    /// A named pipe.
    Fifo,
    /// The name of a socket.
    Socket,
    /// A character device.
    CharDevice(DeviceNo),
    /// A block device.
    BlockDevice(DeviceNo),
}

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'n> {
    /// The directory.
    pub dir: InodeNo,
    /// The name, without slashes.
    pub name: &'n [u8],
}

impl<'n> Name<'n> {
    /// The name `name` in the directory `dir`.
    #[must_use]
    pub fn new(dir: InodeNo, name: &'n [u8]) -> Self {
        Self { dir, name }
    }
}

impl<'n> From<(InodeNo, &'n [u8])> for Name<'n> {
    fn from((dir, name): (InodeNo, &'n [u8])) -> Self {
        Self { dir, name }
    }
}

impl<'n, const LEN: usize> From<(InodeNo, &'n [u8; LEN])> for Name<'n> {
    fn from((dir, name): (InodeNo, &'n [u8; LEN])) -> Self {
        Self { dir, name }
    }
}

/// What rename does with a target that exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces the target.
    #[default]
    Replace,
    /// Fails with [`Error::Exists`](crate::Error::Exists).
    NoReplace,
    /// Exchanges source and target, which must exist.
    Exchange,
}

/// What fallocate does with its range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FallocateMode {
    /// Allocates the range; the file grows to the end of the range.
    Allocate,
    /// Allocates the range; the size stays.
    KeepSize,
    /// Frees the range, which becomes a hole; the size stays.
    PunchHole,
    /// Makes the range read as zeros and keeps it allocated; the file grows unless `keep_size`.
    ZeroRange {
        /// Whether the size stays.
        keep_size: bool,
    },
    /// Removes the range, so that later data moves down; whole blocks only.
    CollapseRange,
    /// Inserts a hole at the offset, so that later data moves up; whole blocks only.
    InsertRange,
}

/// What a seek searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekKind {
    /// The next byte that is not in a hole.
    Data,
    /// The next byte in a hole; the end of the file counts as one.
    Hole,
}

/// A contiguous run of a file on the volume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// Offset in the file.
    pub logical: u64,
    /// Offset on the volume.
    pub physical: u64,
    /// Length.
    pub len: u64,
    /// Whether the run is allocated and reads as zeros.
    pub unwritten: bool,
    /// Whether the inode itself holds the data.
    pub inline: bool,
    /// Whether this is the last run of the file.
    pub last: bool,
}

/// Whether setting an extended attribute creates or replaces it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// Creates the attribute or replaces it.
    #[default]
    Either,
    /// Creates it; fails if it exists.
    Create,
    /// Replaces it; fails if it does not exist.
    Replace,
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The inode.
    pub ino: InodeNo,
    /// The type, if the volume stores types in directories.
    pub kind: Option<FileType>,
    /// The name.
    pub name: &'a [u8],
    /// The cookie with which listing continues after this entry.
    pub next: u64,
}

/// Sizes and counts of a volume, as statfs(2) returns them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statfs {
    /// Bytes of a block.
    pub block_size: u32,
    /// All blocks but those of fixed metadata.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks that are not reserved for privileged users.
    pub blocks_available: u64,
    /// All inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Bytes of the longest name.
    pub name_max: u32,
    /// The volume's UUID.
    pub uuid: [u8; 16],
}
