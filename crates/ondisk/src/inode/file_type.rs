//! File types, as modes and directory entries encode them.

use std::fmt;

/// Bits of a mode.
pub mod mode {
    /// The bits of the type.
    pub const TYPE: u16 = 0o170_000;
    /// Set user on execution.
    pub const SETUID: u16 = 0o4000;
    /// Set group on execution; on a directory, new files inherit the group.
    pub const SETGID: u16 = 0o2000;
    /// Only owners may delete entries (sticky bit).
    pub const STICKY: u16 = 0o1000;
    /// All bits but the type.
    pub const PERMISSIONS: u16 = 0o7777;
}

/// The types of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FileType {
    Regular,
    Directory,
    CharDevice,
    BlockDevice,
    Fifo,
    Socket,
    Symlink,
}

impl FileType {
    /// All types with their mode bits and their code in directory entries.
    const TABLE: [(FileType, u16, u8); 7] = [
        (FileType::Regular, 0o100_000, 1),
        (FileType::Directory, 0o040_000, 2),
        (FileType::CharDevice, 0o020_000, 3),
        (FileType::BlockDevice, 0o060_000, 4),
        (FileType::Fifo, 0o010_000, 5),
        (FileType::Socket, 0o140_000, 6),
        (FileType::Symlink, 0o120_000, 7),
    ];

    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(self) -> bool {
        self == Self::Directory
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(self) -> bool {
        self == Self::Regular
    }

    /// Whether it is a symbolic link.
    #[must_use]
    pub fn is_symlink(self) -> bool {
        self == Self::Symlink
    }

    /// The type that a mode's bits name.
    #[must_use]
    pub fn of_mode(mode: u16) -> Option<Self> {
        Self::TABLE.iter().find(|row| row.1 == mode & mode::TYPE).map(|row| row.0)
    }

    /// The type that a directory entry's code names; `None` for 0 (unknown) and for other codes.
    #[must_use]
    pub fn of_entry(code: u8) -> Option<Self> {
        Self::TABLE.iter().find(|row| row.2 == code).map(|row| row.0)
    }

    /// The type's bits in a mode.
    #[must_use]
    pub fn mode_bits(self) -> u16 {
        Self::TABLE[self as usize].1
    }

    /// The type's code in a directory entry.
    #[must_use]
    pub fn entry_code(self) -> u8 {
        Self::TABLE[self as usize].2
    }
}

impl fmt::Display for FileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Regular => "regular file",
            Self::Directory => "directory",
            Self::CharDevice => "character device",
            Self::BlockDevice => "block device",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::Symlink => "symbolic link",
        })
    }
}
