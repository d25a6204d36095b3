//! Partition tables: GPT, and MBR with its chain of logical partitions.
//!
//! A partition that cannot be used has a fault: it overlaps another one, the table or the end of
//! the device. A table with a fault has no usable partition. The number of reads, the number of
//! partitions and the bytes of a read are bounded, whatever the table says.
//!
//! A table of either form counts sectors. Block devices know the size of a sector; for files it is
//! the one with which the table makes sense: the place of the GPT's header, or the places of ext
//! superblocks in partitions of an MBR.

use super::partition_types::PartitionType;
use super::{Read, gpt, mbr};
use std::fmt;

/// The sizes of sectors, in bytes.
pub(super) const SECTORS: [u64; 2] = [512, 4096];
/// The most partitions that a message lists.
const NAMED: usize = 8;

/// A disk's partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionTable {
    /// `GPT` or `MBR`.
    pub form: &'static str,
    /// Bytes of a sector.
    pub sector: u64,
    /// The partitions, in the order of the table.
    pub partitions: Vec<Partition>,
    /// Why no partition can be used, if none can.
    pub fault: Option<String>,
}

/// A partition of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Partition {
    /// The partition's number, from 1.
    pub number: u32,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub size: u64,
    /// Its type.
    pub kind: PartitionType,
    /// The name, if the table has names.
    pub name: String,
    /// The identifier that Linux calls PARTUUID.
    pub uuid: String,
    /// Whether it holds an ext superblock.
    pub ext: bool,
    /// Why it cannot be used, if it cannot.
    pub fault: Option<String>,
}

impl PartitionTable {
    /// Reads the partition table of a device of `size` bytes with sectors of `sector` bytes; `None`
    /// if it has none. Without `sector` the table decides.
    pub fn read(size: u64, sector: Option<u64>, read: &mut Read<'_>) -> Option<Self> {
        let all = [sector.unwrap_or_default()];
        let sectors: &[u64] = if sector.is_some() { &all } else { &SECTORS };
        let mut boot = [0; 512];
        if size < 1024 || !read(0, &mut boot) {
            return None;
        }
        let protected = mbr::is_protective(&boot);
        if protected || mbr::is_empty(&boot) {
            let found =
                sectors.iter().find_map(|sector| gpt::table(size, *sector, protected, read));
            if let Some(table) = found {
                return Some(table.checked(size, read));
            }
        }
        let mut tables = sectors.iter().filter_map(|sector| {
            let table = mbr::table(&boot, size, *sector, read)?;
            Some(table.checked(size, read))
        });
        let first = tables.next()?;
        let has_ext = |table: &Self| table.partitions.iter().any(|part| part.ext);
        let sound = |table: &Self| table.partitions.iter().all(|part| part.end() <= size);
        match tables.next() {
            Some(second) if !has_ext(&first) && has_ext(&second) && sound(&second) => Some(second),
            _ => Some(first),
        }
    }

    /// Looks for superblocks, and for partitions that overlap each other or end beyond the device.
    fn checked(mut self, size: u64, read: &mut Read<'_>) -> Self {
        for part in &mut self.partitions {
            let mut magic = [0; 2];
            if part.end() > size && part.fault.is_none() {
                part.fault = Some(format!("it ends at byte {} of {size}", part.end()));
            }
            let at = part.offset.checked_add(0x438).filter(|_| part.fault.is_none());
            part.ext = at.is_some_and(|at| read(at, &mut magic)) && magic == *b"\x53\xef";
        }
        let mut order: Vec<usize> = (0..self.partitions.len()).collect();
        order.retain(|n| !self.partitions[*n].kind.is_extended());
        order.sort_by_key(|n| self.partitions[*n].offset);
        let mut last: Option<usize> = None;
        for next in order {
            if let Some(before) = last {
                let (one, other) = (&self.partitions[before], &self.partitions[next]);
                if other.offset < one.end() {
                    let (a, b) = (one.number, other.number);
                    self.fault_at(before, format!("it overlaps partition {b}"));
                    self.fault_at(next, format!("it overlaps partition {a}"));
                }
                if self.partitions[before].end() > self.partitions[next].end() {
                    continue;
                }
            }
            last = Some(next);
        }
        self
    }

    fn fault_at(&mut self, index: usize, fault: String) {
        self.partitions[index].fault.get_or_insert(fault);
    }
}

impl Partition {
    /// The byte after the last one.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.size)
    }
}

pub(super) fn le32(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    four.map_or(0, u32::from_le_bytes)
}

pub(super) fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from(le32(bytes, at)) | u64::from(le32(bytes, at + 4)) << 32
}

impl fmt::Display for PartitionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it is a disk with a partition table ({})", self.form)?;
        if let Some(fault) = &self.fault {
            return write!(f, ", which is damaged: {fault}");
        }
        for (n, part) in self.partitions.iter().take(NAMED).enumerate() {
            let Partition { number, offset, size, name, ext, .. } = part;
            write!(f, "{} {number}", if n == 0 { ": partition" } else { ", partition" })?;
            if !name.is_empty() {
                write!(f, " {name:?}")?;
            }
            let kind = if *ext { ", ext" } else { "" };
            write!(f, " at byte {offset} ({size} bytes{kind})")?;
        }
        match self.partitions.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
