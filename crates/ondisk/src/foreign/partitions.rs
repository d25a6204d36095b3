//! Partition tables: GPT, and MBR with its chain of logical partitions.

use super::Read;
use std::fmt;

/// The most entries that are read, and the most partitions that a message lists.
const ENTRIES: u32 = 256;
const LINKS: usize = 64;
const NAMED: usize = 8;

/// A disk's partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionTable {
    /// `GPT` or `MBR`.
    pub form: &'static str,
    /// The partitions that lie on the device.
    pub partitions: Vec<Partition>,
}

/// A partition of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The partition's number, from 1.
    pub number: u32,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub size: u64,
    /// The name, if the table has names.
    pub name: String,
    /// Whether it holds an ext superblock.
    pub ext: bool,
}

impl PartitionTable {
    /// The partition table of a disk that begins with `head`.
    pub(super) fn read(head: &[u8], size: u64, read: &mut Read<'_>) -> Option<Self> {
        let mut table = gpt(head, size, read).or_else(|| mbr(head, size, read))?;
        for part in &mut table.partitions {
            let mut magic = [0; 2];
            part.ext = read(part.offset.saturating_add(0x438), &mut magic) && magic == *b"\x53\xef";
        }
        Some(table)
    }
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    four.map_or(0, u32::from_le_bytes)
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from(le32(bytes, at)) | u64::from(le32(bytes, at + 4)) << 32
}

fn gpt(head: &[u8], size: u64, read: &mut Read<'_>) -> Option<PartitionTable> {
    let is_header = |sector: &u64| {
        let at = usize::try_from(*sector).unwrap_or(usize::MAX);
        head.get(at..).is_some_and(|rest| rest.starts_with(b"EFI PART"))
    };
    let sector = [512u64, 4096].into_iter().find(is_header)?;
    let header = &head[usize::try_from(sector).ok()?..];
    let (first, count, len) = (le64(header, 72), le32(header, 80), le32(header, 84));
    let len = usize::try_from(len).ok().filter(|len| (128..=4096).contains(len));
    let mut partitions = Vec::new();
    let mut entry = vec![0; len.unwrap_or(0)];
    for n in 0..count.min(if len.is_some() { ENTRIES } else { 0 }) {
        let at = first.checked_mul(sector).and_then(|at| {
            at.checked_add(u64::from(n) * u64::try_from(entry.len()).unwrap_or(u64::MAX))
        });
        if !at.is_some_and(|at| read(at, &mut entry)) {
            break;
        }
        let (begin, end) = (le64(&entry, 32), le64(&entry, 40));
        if entry[..16].iter().all(|byte| *byte == 0) || end < begin {
            continue;
        }
        let (offset, bytes) = (begin.checked_mul(sector), (end - begin).checked_mul(sector));
        let (Some(offset), Some(bytes)) = (offset, bytes) else { continue };
        let bytes = bytes.saturating_add(sector);
        let name = entry[56..128].chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]]));
        let name: Vec<u16> = name.take_while(|word| *word != 0).collect();
        if offset < size {
            let name = String::from_utf16_lossy(&name);
            partitions.push(Partition { number: n + 1, offset, size: bytes, name, ext: false });
        }
    }
    Some(PartitionTable { form: "GPT", partitions })
}

/// Type, first sector and number of sectors of MBR entry `n`.
fn entry(sector: &[u8], n: usize) -> (u8, u64, u64) {
    let at = 446 + 16 * n;
    let place = (le32(sector, at + 8), le32(sector, at + 12));
    (sector[at + 4], u64::from(place.0), u64::from(place.1))
}

fn is_extended(kind: u8) -> bool {
    matches!(kind, 0x05 | 0x0f | 0x85)
}

fn mbr(head: &[u8], size: u64, read: &mut Read<'_>) -> Option<PartitionTable> {
    let sector = head.get(..512).filter(|sector| sector[510..] == *b"\x55\xaa")?;
    let flags = (0..4).all(|n| matches!(sector[446 + 16 * n], 0 | 0x80));
    let mut partitions = Vec::new();
    let mut extended = None;
    for n in 0..4u8 {
        let (kind, first, count) = entry(sector, usize::from(n));
        if kind == 0 || first == 0 || count == 0 || first * 512 >= size {
            continue;
        }
        if is_extended(kind) {
            extended = Some(first);
            continue;
        }
        let number = u32::from(n) + 1;
        let (offset, size) = (first * 512, count * 512);
        partitions.push(Partition { number, offset, size, name: String::new(), ext: false });
    }
    if !flags || (partitions.is_empty() && extended.is_none()) {
        return None;
    }
    if let Some(first) = extended {
        logical(first, size, &mut partitions, read);
    }
    Some(PartitionTable { form: "MBR", partitions })
}

/// Adds the logical partitions of the extended partition at sector `first`. Each has its own table,
/// which names it and the next table.
fn logical(first: u64, size: u64, partitions: &mut Vec<Partition>, read: &mut Read<'_>) {
    let mut at = first;
    let mut seen = Vec::new();
    let mut sector = [0; 512];
    for number in (5..).take(LINKS) {
        if seen.contains(&at) {
            return;
        }
        seen.push(at);
        if !read(at * 512, &mut sector) || sector[510..] != *b"\x55\xaa" {
            return;
        }
        let (kind, begin, count) = entry(&sector, 0);
        if kind != 0 && count > 0 && (at + begin) * 512 < size {
            let (offset, size) = ((at + begin) * 512, count * 512);
            partitions.push(Partition { number, offset, size, name: String::new(), ext: false });
        }
        let (kind, next, _) = entry(&sector, 1);
        if !is_extended(kind) || next == 0 {
            return;
        }
        at = first + next;
    }
}

impl fmt::Display for PartitionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it is a disk with a partition table ({})", self.form)?;
        for (n, part) in self.partitions.iter().take(NAMED).enumerate() {
            let Partition { number, offset, size, name, ext } = part;
            write!(f, "{} {number}", if n == 0 { ": partition" } else { ", partition" })?;
            if !name.is_empty() {
                write!(f, " {name:?}")?;
            }
            let kind = if *ext { ", ext" } else { "" };
            write!(f, " at byte {offset} ({size} bytes{kind})")?;
        }
        match self.partitions.len().saturating_sub(NAMED) {
            0 => {}
            more => write!(f, " and {more} more")?,
        }
        if let Some(part) = self.partitions.iter().find(|part| part.ext) {
            write!(f, "; `nextent mount -o offset={}` mounts one", part.offset)?;
        }
        write!(f, "; `losetup -P -f --show` makes a device of each partition")
    }
}
