//! What a device holds where no ext superblock is: nothing, another format, a disk with partitions,
//! or a volume that has lost its first superblock.
//!
//! [`Foreign::identify`] is asked after the magic number was wrong, and only then: other formats
//! leave the bytes of a superblock alone, so a volume may lie behind a magic number of theirs. What
//! it says is for people. `formats` is the table of magic numbers, `partitions` reads tables of
//! partitions.
//!
//! The bytes come from a closure, for nothing here reads a device. Any bytes may come, any read may
//! fail; the number of reads is bounded.

mod formats;
mod partitions;
#[cfg(test)]
mod tests;

use crate::Superblock;
use crate::superblock::{SUPER_OFFSET, SUPER_SIZE};
use std::fmt;

pub use partitions::{Partition, PartitionTable};

/// The bytes that hold the magic numbers of all formats but those at the end of a device.
const HEAD: usize = 160 << 10;

/// Fills a buffer from an offset; false if that cannot be done.
type Read<'a> = dyn FnMut(u64, &mut [u8]) -> bool + 'a;

/// What there is instead of a file system's first superblock. [`Display`](fmt::Display) says it in
/// one line, with what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Foreign {
    /// The device has no bytes.
    Empty,
    /// A format of the table.
    Format {
        /// What it is, as "gzip-compressed data".
        name: &'static str,
        /// What to do about it.
        advice: &'static str,
    },
    /// A disk with partitions.
    Disk(PartitionTable),
    /// The first superblock is lost; another one is there.
    Backup {
        /// Its block.
        block: u64,
        /// The size of the volume's blocks.
        block_size: u32,
        /// Only zeros are in the place of the first one.
        zeros: bool,
    },
    /// Too few bytes for a superblock.
    Short {
        /// How many there are.
        bytes: u64,
    },
    /// Only zeros in the place of a superblock, and no backup of one.
    Zeros,
    /// Nothing that is known here.
    Unknown {
        /// What is in the magic number's place.
        magic: u16,
    },
}

impl Foreign {
    /// Looks at a device of `size` bytes that has no ext superblock in its place.
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
        if let Some(table) = PartitionTable::read(&head, size, read) {
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

    /// Whether this can be an ext volume whose first superblock is damaged.
    #[must_use]
    pub fn may_be_damage(&self) -> bool {
        matches!(self, Self::Backup { .. } | Self::Zeros | Self::Unknown { .. })
    }
}

/// The second superblock of a volume, where the size of its blocks puts it: block and block size.
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
