//! Errors about bytes from a disk: the structure, the broken rule, and the location.
//!
//! A parser sees only bytes, so it fills in structure and rule. The caller knows where it read the
//! bytes and adds the location with [`Corrupt::at_block`] and its siblings.

use std::fmt;

use crate::{BlockNo, GroupNo, InodeNo};

/// The structure that a parser expected in the bytes.
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
    /// The magic number is not that of the structure.
    Magic {
        /// The number in the bytes.
        found: u32,
    },
    /// The stored checksum does not match the bytes.
    Checksum {
        /// The stored checksum.
        found: u32,
        /// The computed checksum.
        expected: u32,
    },
    /// A field, or a sum of fields, has an impossible value.
    Field {
        /// The field's name, or a short phrase for the rule.
        name: &'static str,
        /// The impossible value.
        value: u64,
    },
    /// A rule that concerns no single value is broken.
    Rule {
        /// A short clause that says what is wrong.
        broken: &'static str,
    },
    /// The structure is longer than the bytes that hold it.
    TooShort {
        /// Bytes that the structure needs.
        need: usize,
        /// Bytes available.
        have: usize,
    },
}

/// The location of the bytes, as far as the caller added it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CorruptLocation {
    /// The block of the volume.
    pub block: Option<BlockNo>,
    /// The inode that the bytes belong to.
    pub inode: Option<InodeNo>,
    /// The block group that the bytes describe.
    pub group: Option<GroupNo>,
}

/// An error for bytes that break a rule of the format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Corrupt {
    /// The structure.
    pub structure: Structure,
    /// The broken rule.
    pub kind: CorruptKind,
    /// The location.
    pub location: CorruptLocation,
}

impl Corrupt {
    /// An error without a location.
    #[must_use]
    pub fn new(structure: Structure, kind: CorruptKind) -> Self {
        Self { structure, kind, location: CorruptLocation::default() }
    }

    /// An error for a field with an impossible value.
    #[must_use]
    pub fn field(structure: Structure, name: &'static str, value: impl Into<u64>) -> Self {
        Self::new(structure, CorruptKind::Field { name, value: value.into() })
    }

    /// An error for a broken rule; `broken` is a short clause.
    #[must_use]
    pub fn rule(structure: Structure, broken: &'static str) -> Self {
        Self::new(structure, CorruptKind::Rule { broken })
    }

    /// An error for a wrong magic number.
    #[must_use]
    pub fn magic(structure: Structure, found: impl Into<u32>) -> Self {
        Self::new(structure, CorruptKind::Magic { found: found.into() })
    }

    /// An error for a wrong checksum.
    #[must_use]
    pub fn checksum(structure: Structure, found: u32, expected: u32) -> Self {
        Self::new(structure, CorruptKind::Checksum { found, expected })
    }

    /// An error for bytes that end before the structure does.
    #[must_use]
    pub fn too_short(structure: Structure, need: usize, have: usize) -> Self {
        Self::new(structure, CorruptKind::TooShort { need, have })
    }

    /// Adds the block. A block that is already set stays.
    #[must_use]
    pub fn at_block(mut self, block: BlockNo) -> Self {
        self.location.block.get_or_insert(block);
        self
    }

    /// Adds the inode. An inode that is already set stays.
    #[must_use]
    pub fn at_inode(mut self, inode: InodeNo) -> Self {
        self.location.inode.get_or_insert(inode);
        self
    }

    /// Adds the group. A group that is already set stays.
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
            CorruptKind::Rule { broken } => write!(f, ": {broken}"),
            CorruptKind::TooShort { need, have } => {
                write!(f, ": needs {need} bytes, has only {have}")
            }
        }
    }
}
