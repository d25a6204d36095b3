//! Partition tables in a boot sector (MBR), and the chain of tables in an extended partition.
//!
//! Each table of the chain describes one logical partition, at a distance from itself, and the next
//! table, at a distance from the extended partition.

use super::Read;
use super::partition_types::PartitionType;
use super::partitions::{Partition, PartitionTable, le32};

/// The most tables of a chain that are read.
const LINKS: usize = 128;
/// The type of the entry that protects a GPT.
const PROTECTIVE: u8 = 0xee;

/// An entry: type, first sector and number of sectors.
struct Entry {
    kind: u8,
    first: u64,
    count: u64,
}

impl Entry {
    fn of(sector: &[u8; 512], n: usize) -> Self {
        let at = 446 + 16 * n;
        let (first, count) = (le32(sector, at + 8), le32(sector, at + 12));
        Self { kind: sector[at + 4], first: first.into(), count: count.into() }
    }

    fn is_used(&self) -> bool {
        self.kind != 0 && self.count > 0
    }

    fn is_extended(&self) -> bool {
        self.is_used() && PartitionType::Mbr(self.kind).is_extended()
    }
}

fn entries(sector: &[u8; 512]) -> impl Iterator<Item = Entry> {
    (0..4).map(|n| Entry::of(sector, n))
}

fn is_boot_sector(sector: &[u8; 512]) -> bool {
    sector[510..] == *b"\x55\xaa"
}

/// Whether a boot sector protects a GPT.
pub(super) fn is_protective(boot: &[u8; 512]) -> bool {
    is_boot_sector(boot) && entries(boot).any(|entry| entry.kind == PROTECTIVE)
}

/// Whether a boot sector has no table.
pub(super) fn is_empty(boot: &[u8; 512]) -> bool {
    !is_boot_sector(boot) || !entries(boot).any(|entry| entry.is_used())
}

/// The partitions of a disk with the sector `boot`; `None` if it has no table.
pub(super) fn table(
    boot: &[u8; 512],
    size: u64,
    sector: u64,
    read: &mut Read<'_>,
) -> Option<PartitionTable> {
    let flags = (0..4).all(|n| matches!(boot[446 + 16 * n], 0 | 0x80));
    let inside = entries(boot)
        .any(|entry| entry.is_used() && entry.first > 0 && entry.first * sector < size);
    if !is_boot_sector(boot) || !flags || !inside {
        return None;
    }
    let id = le32(boot, 440);
    let mut table = PartitionTable { form: "MBR", sector, partitions: Vec::new(), fault: None };
    for (number, entry) in (1..).zip(entries(boot)).filter(|(_, entry)| entry.is_used()) {
        let fault = if entry.is_extended() {
            Some("it is extended: its partitions have the numbers from 5 on".to_owned())
        } else if entry.kind == PROTECTIVE {
            Some("it protects a GPT, whose headers are lost".to_owned())
        } else {
            (entry.first == 0).then(|| "it overlaps the partition table".to_owned())
        };
        table.partitions.push(partition((number, id), entry.first, &entry, (sector, fault)));
    }
    for extended in entries(boot).filter(Entry::is_extended) {
        logical(&extended, &mut table, id, read);
    }
    Some(table)
}

fn partition(
    (number, id): (u32, u32),
    first: u64,
    entry: &Entry,
    (sector, fault): (u64, Option<String>),
) -> Partition {
    Partition {
        number,
        offset: first * sector,
        size: entry.count * sector,
        kind: PartitionType::Mbr(entry.kind),
        name: String::new(),
        uuid: format!("{id:08x}-{number:02x}"),
        ext: false,
        fault,
    }
}

/// Adds the logical partitions of an extended one. They are numbered from 5 on.
fn logical(extended: &Entry, table: &mut PartitionTable, id: u32, read: &mut Read<'_>) {
    let mut at = extended.first;
    let mut seen = Vec::new();
    let mut sector = [0; 512];
    let last = extended.first + extended.count;
    loop {
        if seen.contains(&at) {
            table.fault = Some("the tables of its extended partition form a circle".to_owned());
            return;
        }
        if seen.len() == LINKS {
            table.fault = Some(format!("its extended partition has more than {LINKS} tables"));
            return;
        }
        seen.push(at);
        if !read(at * table.sector, &mut sector) || !is_boot_sector(&sector) {
            return;
        }
        let data = entries(&sector).take(2).filter(|entry| entry.is_used());
        for entry in data.filter(|entry| !entry.is_extended()) {
            let first = at + entry.first;
            let inside = entry.first > 0 && first + entry.count <= last;
            let fault = (!inside).then(|| "it lies outside of the extended partition".to_owned());
            let before = table.partitions.iter().filter(|part| part.number > 4).count();
            let Ok(number) = u32::try_from(before + 5) else { return };
            let part = partition((number, id), first, &entry, (table.sector, fault));
            table.partitions.push(part);
        }
        match entries(&sector).find(Entry::is_extended) {
            Some(next) if next.first > 0 => at = extended.first + next.first,
            _ => return,
        }
    }
}
