//! GUID partition tables.
//!
//! The header at the second sector counts if its checksum and that of the entries are right, else
//! the backup in the last sector of the device.

use super::Read;
use super::partition_types::PartitionType;
use super::partitions::{Partition, PartitionTable, le32, le64};
use crc_fast::{CrcAlgorithm, checksum};
use uuid::Uuid;

const MAGIC: &[u8] = b"EFI PART";
/// Bytes of the header.
const HEADER: usize = 92;
/// The most bytes of all entries; the usual number is 16 KiB.
const ENTRIES: usize = 256 << 10;

/// The table of a device with sectors of `sector` bytes; `None` if there is no header. A
/// `protected` device has only this table.
pub(super) fn table(
    size: u64,
    sector: u64,
    protected: bool,
    read: &mut Read<'_>,
) -> Option<PartitionTable> {
    let mut fault = None;
    let last = (size / sector).checked_sub(1)?;
    for place in [1, last] {
        match at(place, (size, sector), read) {
            Ok(partitions) => {
                return Some(PartitionTable { form: "GPT", sector, partitions, fault: None });
            }
            // A backup without its table's boot sector is a remainder of an earlier table.
            Err(None) if !protected => return None,
            Err(None) => {}
            Err(Some(why)) => fault = fault.or(Some(why)),
        }
    }
    fault.map(|why| PartitionTable {
        form: "GPT",
        sector,
        partitions: Vec::new(),
        fault: Some(why.to_owned()),
    })
}

/// The partitions of the table whose header is in sector `place`.
///
/// # Errors
/// What is wrong with the header, or `None` if there is none.
fn at(
    place: u64,
    (size, sector): (u64, u64),
    read: &mut Read<'_>,
) -> Result<Vec<Partition>, Option<&'static str>> {
    let mut header = [0; HEADER];
    if !read(place.checked_mul(sector).ok_or(None)?, &mut header) || !header.starts_with(MAGIC) {
        return Err(None);
    }
    let (len, stored) = (le32(&header, 12), le32(&header, 16));
    header[16..20].fill(0);
    if usize::try_from(len) != Ok(HEADER) {
        return Err(Some("its header has an unknown length"));
    }
    if crc32(&header) != stored.into() {
        return Err(Some("the checksum of its header is wrong"));
    }
    if le64(&header, 24) != place {
        return Err(Some("its header is for another sector"));
    }
    let (first, count, len) = (le64(&header, 72), le32(&header, 80), le32(&header, 84));
    let sizes = usize::try_from(count).ok().zip(usize::try_from(len).ok());
    let sizes = sizes.filter(|(_, len)| (128..=4096).contains(len));
    let bytes = sizes.and_then(|(count, len)| count.checked_mul(len));
    let (Some((_, len)), Some(bytes)) = (sizes, bytes.filter(|all| *all <= ENTRIES)) else {
        return Err(Some("it has too many entries, or entries of an unknown length"));
    };
    let start = first.checked_mul(sector).ok_or(Some("its entries are beyond the device"))?;
    let mut entries = vec![0; bytes];
    if !read(start, &mut entries) {
        return Err(Some("its entries cannot be read"));
    }
    if crc32(&entries) != le32(&header, 88).into() {
        return Err(Some("the checksum of its entries is wrong"));
    }
    let usable = (le64(&header, 40), le64(&header, 48));
    let parts = (1u32..).zip(entries.chunks_exact(len));
    Ok(parts.filter_map(|(number, bytes)| entry(number, bytes, usable, (size, sector))).collect())
}

fn crc32(bytes: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc32IsoHdlc, bytes)
}

/// A partition from its entry; `None` if the entry is unused.
fn entry(
    number: u32,
    bytes: &[u8],
    (first_usable, last_usable): (u64, u64),
    (size, sector): (u64, u64),
) -> Option<Partition> {
    let id = |at: usize| {
        let bytes = bytes.get(at..at + 16).and_then(|id| id.try_into().ok());
        bytes.map(Uuid::from_bytes_le).unwrap_or_default()
    };
    let (kind, unique) = (id(0), id(16));
    if kind.is_nil() {
        return None;
    }
    let (begin, end) = (le64(bytes, 32), le64(bytes, 40));
    let fault = if end < begin {
        Some("it ends before it begins".to_owned())
    } else if begin < first_usable.max(2) || end > last_usable || begin > size / sector {
        Some(format!("its sectors {begin} to {end} are outside of those for partitions"))
    } else {
        None
    };
    let sectors = end.saturating_sub(begin).saturating_add(1);
    let name = bytes[56..128].chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]]));
    let name: Vec<u16> = name.take_while(|word| *word != 0).collect();
    Some(Partition {
        number,
        offset: begin.saturating_mul(sector),
        size: sectors.saturating_mul(sector),
        kind: PartitionType::Gpt(kind),
        name: String::from_utf16_lossy(&name),
        uuid: unique.to_string(),
        ext: false,
        fault,
    })
}
