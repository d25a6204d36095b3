//! What is wrong with bytes that came from a disk: which structure, which rule, and where.
//!
//! Parsers here see bytes only, so they fill in the structure and the rule; the caller, who knows
//! where the bytes were read, adds the location with [`Corrupt::at_block`] and its relatives.

use std::fmt;

use crate::{BlockNo, GroupNo, InodeNo};

/// The kind of structure that bytes were taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)] // the names are the documentation; `Display` spells them out
pub enum Structure {
    Superblock,
    GroupDescriptor,
    BlockBitmap,
    InodeBitmap,
    Inode,
    ExtentNode,
    IndirectBlock,
    Directory,
    DirectoryIndex,
    Xattr,
    Acl,
    Symlink,
    InlineData,
    JournalSuperblock,
    JournalBlock,
    FastCommit,
    OrphanFile,
    OrphanList,
    MultiMount,
    Quota,
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Superblock => "superblock",
            Self::GroupDescriptor => "group descriptor",
            Self::BlockBitmap => "block bitmap",
            Self::InodeBitmap => "inode bitmap",
            Self::Inode => "inode",
            Self::ExtentNode => "extent tree node",
            Self::IndirectBlock => "indirect block",
            Self::Directory => "directory block",
            Self::DirectoryIndex => "directory index",
            Self::Xattr => "extended attributes",
            Self::Acl => "access control list",
            Self::Symlink => "symbolic link",
            Self::InlineData => "inline data",
            Self::JournalSuperblock => "journal superblock",
            Self::JournalBlock => "journal block",
            Self::FastCommit => "fast commit record",
            Self::OrphanFile => "orphan file block",
            Self::OrphanList => "orphan list",
            Self::MultiMount => "multi-mount protection block",
            Self::Quota => "quota file",
        })
    }
}

/// The rule that the bytes break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CorruptKind {
    /// The magic number is not the one of this structure.
    Magic {
        /// The number found.
        found: u32,
    },
    /// The stored checksum is not the one of the bytes.
    Checksum {
        /// The checksum stored.
        found: u32,
        /// The checksum of the bytes.
        expected: u32,
    },
    /// A field, or a sum of fields, has a value that cannot be.
    Field {
        /// The field's name, or a short sentence about the rule.
        name: &'static str,
        /// The value found.
        value: u64,
    },
    /// The structure does not fit into the bytes that hold it.
    TooShort {
        /// The bytes needed.
        need: usize,
        /// The bytes there.
        have: usize,
    },
}

/// Where the bytes lie, as far as the caller said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CorruptLocation {
    /// The block of the volume.
    pub block: Option<BlockNo>,
    /// The inode they belong to.
    pub inode: Option<InodeNo>,
    /// The block group they describe.
    pub group: Option<GroupNo>,
}

/// Bytes on disk that break a rule of the format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Corrupt {
    /// The structure.
    pub structure: Structure,
    /// The rule.
    pub kind: CorruptKind,
    /// The location.
    pub location: CorruptLocation,
}

impl Corrupt {
    /// The structure `structure` breaks the rule `kind`, somewhere.
    #[must_use]
    pub fn new(structure: Structure, kind: CorruptKind) -> Self {
        Self { structure, kind, location: CorruptLocation::default() }
    }

    /// A field of `structure` has the impossible value `value`.
    #[must_use]
    pub fn field(structure: Structure, name: &'static str, value: impl Into<u64>) -> Self {
        Self::new(structure, CorruptKind::Field { name, value: value.into() })
    }

    /// The magic number of `structure` is wrong.
    #[must_use]
    pub fn magic(structure: Structure, found: impl Into<u32>) -> Self {
        Self::new(structure, CorruptKind::Magic { found: found.into() })
    }

    /// The checksum of `structure` is wrong.
    #[must_use]
    pub fn checksum(structure: Structure, found: u32, expected: u32) -> Self {
        Self::new(structure, CorruptKind::Checksum { found, expected })
    }

    /// The bytes end before `structure` does.
    #[must_use]
    pub fn too_short(structure: Structure, need: usize, have: usize) -> Self {
        Self::new(structure, CorruptKind::TooShort { need, have })
    }

    /// The same, read from `block`; a block already named stays.
    #[must_use]
    pub fn at_block(mut self, block: BlockNo) -> Self {
        self.location.block.get_or_insert(block);
        self
    }

    /// The same, belonging to `inode`; an inode already named stays.
    #[must_use]
    pub fn at_inode(mut self, inode: InodeNo) -> Self {
        self.location.inode.get_or_insert(inode);
        self
    }

    /// The same, describing `group`; a group already named stays.
    #[must_use]
    pub fn at_group(mut self, group: GroupNo) -> Self {
        self.location.group.get_or_insert(group);
        self
    }
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "corrupt {}", self.structure)?;
        if let Some(group) = self.location.group {
            write!(f, ", group {group}")?;
        }
        if let Some(inode) = self.location.inode {
            write!(f, ", inode {inode}")?;
        }
        if let Some(block) = self.location.block {
            write!(f, ", block {block}")?;
        }
        match self.kind {
            CorruptKind::Magic { found } => write!(f, ": wrong magic number {found:#x}"),
            CorruptKind::Checksum { found, expected } => {
                write!(f, ": checksum is {found:#x}, should be {expected:#x}")
            }
            CorruptKind::Field { name, value } => write!(f, ": {name} is {value}"),
            CorruptKind::TooShort { need, have } => {
                write!(f, ": needs {need} bytes, only {have} are there")
            }
        }
    }
}
