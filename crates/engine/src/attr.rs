//! What callers say and hear about files: kinds, attributes, modes of operations.

use nextent_ondisk::{DiskTime, FileType, InodeNo};

/// A device number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceNo {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// What `stat` tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The inode.
    pub ino: InodeNo,
    /// Tells one use of the inode number from the next.
    pub generation: u32,
    /// The kind.
    pub kind: FileType,
    /// Permission bits with set-id and sticky bits (`07777`).
    pub mode: u16,
    /// Names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Project.
    pub project: u32,
    /// Bytes.
    pub size: u64,
    /// Space used, in units of 512 bytes.
    pub sectors: u64,
    /// Of a device node.
    pub device: DeviceNo,
    /// Last read.
    pub atime: DiskTime,
    /// Last change of the contents.
    pub mtime: DiskTime,
    /// Last change of anything.
    pub ctime: DiskTime,
    /// Creation, when the inode is large enough to hold it.
    pub crtime: Option<DiskTime>,
    /// The inode flags as `lsattr` knows them.
    pub flags: u32,
    /// Counts changes.
    pub version: u64,
}

/// A moment to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The present.
    Now,
    /// This moment.
    At(DiskTime),
}

/// What to change; `None` leaves a thing as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits (`07777`).
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length: truncates or extends with a hole.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<SetTime>,
    /// Last change of the contents.
    pub mtime: Option<SetTime>,
    /// Last change of anything; for servers with their own clock, and for copies of trees.
    pub ctime: Option<DiskTime>,
    /// Creation.
    pub crtime: Option<DiskTime>,
    /// The flags that `chattr` may set.
    pub flags: Option<u32>,
    /// Project.
    pub project: Option<u32>,
}

/// What a user wants to do with a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Read it, or list it.
    pub read: bool,
    /// Write it, or change its entries.
    pub write: bool,
    /// Execute it, or look names up in it.
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

    /// The bits `rwx` as in one digit of a mode.
    #[must_use]
    pub fn bits(self) -> u16 {
        let bit = |set: bool, bit: u16| if set { bit } else { 0 };
        bit(self.read, 4) | bit(self.write, 2) | bit(self.execute, 1)
    }
}

/// What a new node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewNode {
    /// An empty file.
    Regular,
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
    /// A character device.
    CharDevice(DeviceNo),
    /// A block device.
    BlockDevice(DeviceNo),
}

/// How `rename` treats a target that exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces it.
    #[default]
    Replace,
    /// Fails with [`Error::Exists`](crate::Error::Exists).
    NoReplace,
    /// Both change places; both must exist.
    Exchange,
}

/// What `fallocate` does with its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallocateMode {
    /// Allocates; the file grows to the range's end.
    Allocate,
    /// Allocates; the size stays.
    KeepSize,
    /// Makes a hole; the size stays.
    PunchHole,
    /// Makes the range read as zeros, allocated; the file grows unless `keep_size`.
    ZeroRange {
        /// Whether the size stays.
        keep_size: bool,
    },
    /// Takes the range out of the file; whole blocks only.
    CollapseRange,
    /// Puts a hole in at the offset and moves what follows; whole blocks only.
    InsertRange,
}

/// What `seek` looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekKind {
    /// The next byte that is not in a hole.
    Data,
    /// The next byte in a hole; the end of the file counts as one.
    Hole,
}

/// A run of a file on the volume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// Where in the file.
    pub logical: u64,
    /// Where on the volume.
    pub physical: u64,
    /// How long.
    pub len: u64,
    /// Whether it is allocated but reads as zeros.
    pub unwritten: bool,
    /// Whether the data lies inside the inode.
    pub inline: bool,
    /// Whether it is the file's last.
    pub last: bool,
}

/// How `setxattr` treats a name that exists or does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// Either.
    #[default]
    Either,
    /// Must not exist.
    Create,
    /// Must exist.
    Replace,
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The inode.
    pub ino: InodeNo,
    /// The kind, if the directory says.
    pub kind: Option<FileType>,
    /// The name.
    pub name: &'a [u8],
    /// Where reading goes on after this entry.
    pub next: u64,
}

/// What `statfs` tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statfs {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks without the fixed metadata.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks that anyone may use.
    pub blocks_available: u64,
    /// Inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// The longest name.
    pub name_max: u32,
    /// The volume's UUID.
    pub uuid: [u8; 16],
}
