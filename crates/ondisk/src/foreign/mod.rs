//! Identifies a device without an ext superblock: empty, another format, a disk with partitions, or
//! a volume that has lost its first superblock.
//!
//! Call [`Foreign::identify`] only after the magic number of the superblock was wrong. Other
//! formats do not overwrite a superblock, so a volume may also have the magic number of another
//! format. The result is a message for people. `formats` is the table of magic numbers;
//! `partitions` reads partition tables, with `gpt` and `mbr` for their two forms.
//!
//! Invariants: a closure supplies the bytes, so nothing here reads a device. Any bytes are
//! accepted, any read may fail, and the number of reads is bounded.

mod formats;
mod gpt;
mod mbr;
#[cfg(test)]
mod partition_tests;
mod partition_types;
mod partitions;
#[cfg(test)]
mod tests;

use crate::Superblock;
use crate::superblock::{SUPER_OFFSET, SUPER_SIZE};
use std::fmt;

pub use partition_types::PartitionType;
pub use partitions::{Partition, PartitionTable};

/// Bytes at the start of a device that hold the magic numbers of all formats, except those at its
/// end.
const HEAD: usize = 160 << 10;

/// Fills a buffer from a byte offset; `false` if the read fails.
type Read<'a> = dyn FnMut(u64, &mut [u8]) -> bool + 'a;

/// The contents of a device without a first superblock. [`Display`](fmt::Display) gives one line
/// with advice.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Foreign {
    /// The device has no bytes.
    Empty,
    /// A format of the table.
    Format {
        /// The format's name, for example "gzip-compressed data".
        name: &'static str,
        /// Advice for the user.
        advice: &'static str,
    },
    /// A disk with partitions.
    Disk(PartitionTable),
    /// The first superblock is lost, but a backup exists.
    Backup {
        /// The block of the backup.
        block: u64,
        /// Bytes of the volume's blocks.
        block_size: u32,
        /// Whether the first superblock is all zeros.
        zeros: bool,
    },
    /// The device is too small for a superblock.
    Short {
        /// Bytes of the device.
        bytes: u64,
    },
    /// The superblock is all zeros, and there is no backup.
    Zeros,
    /// An unknown format.
    Unknown {
        /// The value in the place of the magic number.
        magic: u16,
    },
}

impl Foreign {
    /// Identifies a device of `size` bytes that has no ext superblock.
    pub fn identify(size: u64, read: &mut Read<'_>) -> Self {
        if size == 0 {
            return Self::Empty;
        }
        let len = usize::try_from(size).unwrap_or(usize::MAX).min(HEAD);
        let mut head = vec![0; len];
        if !read(0, &mut head) {
            head.clear();
        }
        if let Some((name, advice)) = formats::strong(&head, size, read) {
            return Self::Format { name, advice };
        }
        if let Some(table) = PartitionTable::read(size, None, read) {
            return Self::Disk(table);
        }
        let zeros = head.get(1024..2048).is_some_and(|sb| sb.iter().all(|byte| *byte == 0));
        if let Some((block, block_size)) = backup(size, read) {
            return Self::Backup { block, block_size, zeros };
        }
        if let Some((name, advice)) = formats::weak(&head) {
            return Self::Format { name, advice };
        }
        if size < SUPER_OFFSET + SUPER_SIZE as u64 {
            return Self::Short { bytes: size };
        }
        if zeros {
            return Self::Zeros;
        }
        let magic = head.get(0x438..0x43a).map_or(0, |two| u16::from_le_bytes([two[0], two[1]]));
        Self::Unknown { magic }
    }

    /// Whether the device may be an ext volume whose first superblock is damaged.
    #[must_use]
    pub fn may_be_damage(&self) -> bool {
        matches!(self, Self::Backup { .. } | Self::Zeros | Self::Unknown { .. })
    }
}

/// The backup superblock in group 1, tried for each block size: its block and the block size.
fn backup(size: u64, read: &mut Read<'_>) -> Option<(u64, u32)> {
    let mut bytes = [0; SUPER_SIZE];
    (10..=16u32).find_map(|bits| {
        let block = (8u64 << bits) + u64::from(bits == 10);
        let at = block << bits;
        if at + SUPER_SIZE as u64 > size || !read(at, &mut bytes) {
            return None;
        }
        let sb = Superblock::read(&bytes).ok()?;
        let own = sb.block_group_nr.get() == 1 && sb.log_block_size.get() == bits - 10;
        (own && sb.check(u64::MAX).is_ok()).then_some((block, 1 << bits))
    })
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backup { block, block_size, zeros } => {
                let what = if *zeros { "zero" } else { "overwritten" };
                return write!(
                    f,
                    "the primary superblock is {what}, but block {block} holds a backup: \
                     `nextent fsck -b {block} -B {block_size}` checks with it, \
                     `e2fsck -b {block} -B {block_size}` restores it"
                );
            }
            _ => write!(f, "no ext file system here: ")?,
        }
        match self {
            Self::Backup { .. } => Ok(()),
            Self::Empty => write!(f, "it is empty; `nextent mkfs` makes one"),
            Self::Format { name, advice } => write!(f, "it is {name}; {advice}"),
            Self::Disk(table) => table.fmt(f),
            Self::Short { bytes } => {
                write!(f, "{bytes} bytes are too few for one; `nextent mkfs` makes one")
            }
            Self::Zeros => {
                write!(
                    f,
                    "the primary superblock is zero, and no backup was found (fsck -b looks \
                     in a block that you name); `nextent mkfs` makes one"
                )
            }
            Self::Unknown { magic } => {
                write!(
                    f,
                    "the magic number is {magic:#06x} instead of 0xef53, the format is not \
                     known, and no backup of a superblock was found"
                )
            }
        }
    }
}
