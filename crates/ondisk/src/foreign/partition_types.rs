//! Types of partitions, and their names.

use std::fmt;
use uuid::{Uuid, uuid};

/// The type of a partition. [`Display`](fmt::Display) gives its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartitionType {
    /// Of a GPT.
    Gpt(Uuid),
    /// Of an MBR.
    Mbr(u8),
}

const GPT: &[(Uuid, &str)] = &[
    (uuid!("0fc63daf-8483-4772-8e79-3d69d8477de4"), "Linux filesystem"),
    (uuid!("4f68bce3-e8cd-4db1-96e7-fbcaf984b709"), "Linux root (x86-64)"),
    (uuid!("b921b045-1df0-41c3-af44-4c6f280d3fae"), "Linux root (ARM-64)"),
    (uuid!("44479540-f297-41b2-9af7-d131d5f0458a"), "Linux root (x86)"),
    (uuid!("69dad710-2ce4-4e3c-b16c-21a1d49abed3"), "Linux root (ARM)"),
    (uuid!("8484680c-9521-48c6-9c11-b0720656f69e"), "Linux /usr (x86-64)"),
    (uuid!("933ac7e1-2eb4-4f13-b844-0e14e2aef915"), "Linux home"),
    (uuid!("3b8f8425-20e0-4f3b-907f-1a25a76f98e8"), "Linux server data"),
    (uuid!("4d21b016-b534-45c2-a9fb-5c16e091fd2d"), "Linux variable data"),
    (uuid!("bc13c2ff-59e6-4262-a352-b275fd6f7172"), "Linux extended boot"),
    (uuid!("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f"), "Linux swap"),
    (uuid!("e6d6d379-f507-44c2-a23c-238f2a3df928"), "Linux LVM"),
    (uuid!("a19d880f-05fc-4d3b-a006-743f0f84911e"), "Linux RAID"),
    (uuid!("ca7d7ccb-63ed-4c53-861c-1742536059cc"), "Linux LUKS"),
    (uuid!("c12a7328-f81f-11d2-ba4b-00a0c93ec93b"), "EFI System"),
    (uuid!("21686148-6449-6e6f-744e-656564454649"), "BIOS boot"),
    (uuid!("ebd0a0a2-b9e5-4433-87c0-68b6b72699c7"), "Microsoft basic data"),
    (uuid!("e3c9e316-0b5c-4db8-817d-f92df00215ae"), "Microsoft reserved"),
];

const MBR: &[(u8, &str)] = &[
    (0x83, "Linux"),
    (0x82, "Linux swap"),
    (0x8e, "Linux LVM"),
    (0xfd, "Linux RAID"),
    (0x05, "Extended"),
    (0x0f, "Extended"),
    (0x85, "Linux extended"),
    (0x01, "FAT12"),
    (0x04, "FAT16"),
    (0x06, "FAT16"),
    (0x0e, "FAT16"),
    (0x0b, "FAT32"),
    (0x0c, "FAT32"),
    (0x07, "NTFS or exFAT"),
    (0xee, "GPT"),
    (0xef, "EFI System"),
];

impl PartitionType {
    /// Its name; empty if it has none here.
    #[must_use]
    pub fn name(&self) -> &'static str {
        let found = match self {
            Self::Gpt(id) => GPT.iter().find(|(known, _)| known == id).map(|(_, name)| name),
            Self::Mbr(code) => MBR.iter().find(|(known, _)| known == code).map(|(_, name)| name),
        };
        found.copied().unwrap_or_default()
    }

    /// Whether it contains logical partitions.
    #[must_use]
    pub fn is_extended(&self) -> bool {
        matches!(self, Self::Mbr(0x05 | 0x0f | 0x85))
    }
}

impl fmt::Display for PartitionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpt(id) => id.fmt(f),
            Self::Mbr(code) => write!(f, "{code:#04x}"),
        }
    }
}
