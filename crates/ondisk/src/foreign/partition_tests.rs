//! Partition tables of both forms, with sectors of both sizes, and hostile ones.

use super::tests::{look, put};
use super::*;
use crc_fast::{CrcAlgorithm, checksum};

const MIB: usize = 1 << 20;

/// The table of a disk, as it is used.
fn table(disk: &[u8], sector: Option<u64>) -> Option<PartitionTable> {
    let mut reads = 0;
    let found = PartitionTable::read(disk.len() as u64, sector, &mut |at, buf| {
        reads += 1;
        let from = usize::try_from(at).ok().and_then(|at| disk.get(at..)?.get(..buf.len()));
        from.inspect(|from| buf.copy_from_slice(from)).is_some()
    });
    assert!(reads < 1000, "bounded");
    found
}

fn crc(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(checksum(CrcAlgorithm::Crc32IsoHdlc, bytes)).unwrap().to_le_bytes()
}

/// A disk of 8 MiB with a GPT: partitions by first and last sector.
fn gpt_disk(sector: usize, parts: &[(u64, u64)]) -> Vec<u8> {
    let mut disk = vec![0; 8 * MIB];
    put(&mut disk, 510, b"\x55\xaa");
    put(&mut disk, 446 + 4, &[0xee]);
    put(&mut disk, 446 + 8, &1u32.to_le_bytes());
    put(&mut disk, 446 + 12, &u32::MAX.to_le_bytes());
    for (n, (first, last)) in parts.iter().enumerate() {
        let at = 2 * sector + 128 * n;
        put(
            &mut disk,
            at,
            uuid::uuid!("0fc63daf-8483-4772-8e79-3d69d8477de4").to_bytes_le().as_slice(),
        );
        put(&mut disk, at + 16, &[n as u8 + 1; 16]);
        put(&mut disk, at + 32, &first.to_le_bytes());
        put(&mut disk, at + 40, &last.to_le_bytes());
        let name: Vec<u8> = "ro\u{1b}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        put(&mut disk, at + 56, &name);
    }
    let last = disk.len() / sector - 1;
    let entries = disk[2 * sector..][..128 * 128].to_vec();
    let backup = last * sector - entries.len();
    put(&mut disk, backup, &entries);
    for (place, entries) in [(1, 2), (last, backup / sector)] {
        put(&mut disk, place * sector, b"EFI PART\0\0\x01\0\x5c\0\0\0");
        put(&mut disk, place * sector + 24, &(place as u64).to_le_bytes());
        put(&mut disk, place * sector + 40, &34u64.to_le_bytes());
        put(&mut disk, place * sector + 48, &(backup as u64 / sector as u64 - 1).to_le_bytes());
        put(&mut disk, place * sector + 72, &(entries as u64).to_le_bytes());
        put(&mut disk, place * sector + 80, &128u32.to_le_bytes());
        put(&mut disk, place * sector + 84, &128u32.to_le_bytes());
        seal(&mut disk, sector, place);
    }
    disk
}

/// Computes the checksums of a GPT again.
fn seal(disk: &mut [u8], sector: usize, place: usize) {
    let at = place * sector;
    let start = u64::from_le_bytes(disk[at + 72..at + 80].try_into().unwrap());
    let entries = usize::try_from(start).unwrap().saturating_mul(sector);
    if let Some(entries) = disk.get(entries..entries.saturating_add(128 * 128)) {
        let sum = crc(entries);
        put(disk, at + 88, &sum);
    }
    put(disk, at + 16, &[0; 4]);
    let sum = crc(&disk[at..at + 92]);
    put(disk, at + 16, &sum);
}

fn mbr_entry(disk: &mut [u8], at: usize, kind: u8, first: u32, count: u32) {
    put(disk, at + 4, &[kind]);
    put(disk, at + 8, &first.to_le_bytes());
    put(disk, at + 12, &count.to_le_bytes());
}

/// Numbers and offsets.
fn places(table: &PartitionTable) -> Vec<(u32, u64)> {
    table.partitions.iter().map(|part| (part.number, part.offset)).collect()
}

fn faults(table: &PartitionTable) -> Vec<bool> {
    table.partitions.iter().map(|part| part.fault.is_some()).collect()
}

#[test]
fn a_gpt_has_names_types_and_identifiers() {
    for sector in [512, 4096] {
        let one = 1024 * 1024 / sector as u64;
        let mut disk = gpt_disk(sector, &[(one, 2 * one - 1), (2 * one, 4 * one - 1)]);
        put(&mut disk, 2 * MIB + 0x438, b"\x53\xef");
        for given in [None, Some(sector as u64)] {
            let table = table(&disk, given).unwrap();
            assert_eq!((table.form, table.sector), ("GPT", sector as u64));
            assert_eq!(places(&table), [(1, 1 << 20), (2, 2 << 20)]);
            assert_eq!(faults(&table), [false, false], "{table:?}");
            let second = &table.partitions[1];
            assert!(second.ext && !table.partitions[0].ext && second.size == 2 << 20);
            assert_eq!(second.kind.name(), "Linux filesystem");
            assert_eq!(second.uuid, "02020202-0202-0202-0202-020202020202");
        }
        let text = look(&disk).to_string();
        assert!(text.contains("2 \"ro\\u{1b}\" at byte 2097152 (2097152 bytes, ext)"), "{text}");
        // The backup counts if the first header or its entries are damaged.
        for damage in [sector, sector + 50, 2 * sector + 300, 0] {
            let mut disk = disk.clone();
            disk[damage..damage + 8].fill(7);
            let table = table(&disk, None).unwrap();
            assert_eq!(places(&table), [(1, 1 << 20), (2, 2 << 20)], "{damage}");
        }
    }
}

#[test]
fn a_damaged_gpt_has_no_partition() {
    let whole = gpt_disk(512, &[(2048, 4095)]);
    let last = whole.len() / 512 - 1;
    let damaged = |place: usize, bytes: &[u8]| {
        let mut disk = whole.clone();
        disk[last * 512..].fill(0);
        put(&mut disk, 512 + place, bytes);
        seal(&mut disk, 512, 1);
        let table = table(&disk, None).unwrap();
        assert!(table.partitions.is_empty() && table.form == "GPT", "{table:?}");
        let text = look(&disk).to_string();
        assert!(text.contains("which is damaged: "), "{text}");
        table.fault.unwrap()
    };
    let huge = u32::MAX.to_le_bytes();
    assert!(damaged(80, &huge).contains("too many entries"));
    assert!(damaged(84, &huge).contains("unknown length"));
    assert!(damaged(84, &0u32.to_le_bytes()).contains("unknown length"));
    assert!(damaged(72, &u64::MAX.to_le_bytes()).contains("beyond the device"));
    assert!(damaged(72, &100_000_000u64.to_le_bytes()).contains("cannot be read"));
    assert!(damaged(24, &7u64.to_le_bytes()).contains("another sector"));
    assert!(damaged(12, &huge).contains("unknown length"));
    // A protected disk without a header.
    let mut disk = whole.clone();
    disk[512..1024].fill(0);
    disk[last * 512..].fill(0);
    let table = table(&disk, None).unwrap();
    assert!(table.partitions[0].fault.as_ref().unwrap().contains("headers are lost"));
}

#[test]
fn partitions_of_a_gpt_that_cannot_be_right_have_faults() {
    let end = 8 * 2048;
    let mixed = [(2048, 4095), (4000, 4999), (6000, 5000), (5000, u64::MAX), (1, 40)];
    let table_of = |parts: &[(u64, u64)]| table(&gpt_disk(512, parts), None).unwrap();
    assert_eq!(faults(&table_of(&mixed)), [true; 5]);
    let inner = [(2048, 9000), (2100, 2200), (3000, 3100), (9001, 9100), (end, end)];
    assert_eq!(faults(&table_of(&inner)), [true, true, true, false, true]);
    let huge = [(u64::MAX, u64::MAX), (u64::MAX - 1, u64::MAX), (2048, 4095)];
    assert_eq!(faults(&table_of(&huge)), [true, true, false]);
}

#[test]
fn an_mbr_has_logical_partitions() {
    for sector in [512, 4096] {
        let mut disk = vec![0; 8 * MIB];
        let at = |place: usize| place * sector;
        put(&mut disk, 440, &0x1234_abcdu32.to_le_bytes());
        put(&mut disk, 510, b"\x55\xaa");
        mbr_entry(&mut disk, 446, 0x83, 256, 100);
        mbr_entry(&mut disk, 478, 0x05, 512, 500);
        put(&mut disk, at(512) + 510, b"\x55\xaa");
        mbr_entry(&mut disk, at(512) + 446, 0x83, 10, 100);
        mbr_entry(&mut disk, at(512) + 462, 0x05, 200, 300);
        put(&mut disk, at(712) + 510, b"\x55\xaa");
        mbr_entry(&mut disk, at(712) + 446, 0x82, 10, 100);
        put(&mut disk, at(722) + 0x438, b"\x53\xef");
        for given in [None, Some(sector as u64)] {
            let table = table(&disk, given).unwrap();
            assert_eq!((table.form, table.sector), ("MBR", sector as u64));
            let wanted = [(1, 256), (3, 512), (5, 522), (6, 722)];
            assert_eq!(places(&table), wanted.map(|(n, place)| (n, at(place) as u64)));
            assert_eq!(faults(&table), [false, true, false, false], "{table:?}");
            let last = &table.partitions[3];
            assert!(last.ext && last.size == at(100) as u64, "{last:?}");
            assert_eq!((&*last.uuid, last.kind.name()), ("1234abcd-06", "Linux swap"));
        }
    }
    // A boot sector without a partition table.
    let mut boot = vec![0; 9000];
    put(&mut boot, 510, b"\x55\xaa");
    assert!(table(&boot, None).is_none());
    assert!(look(&boot).to_string().contains("boot sector"));
}

#[test]
fn hostile_chains_of_logical_partitions_end() {
    let disk = |next: &dyn Fn(u32) -> u32| {
        let mut disk = vec![0; 8 * MIB];
        put(&mut disk, 510, b"\x55\xaa");
        mbr_entry(&mut disk, 446, 0x05, 1, 16_000);
        for place in 1..16_000usize {
            put(&mut disk, place * 512 + 510, b"\x55\xaa");
            mbr_entry(&mut disk, place * 512 + 446, 0x83, 1, 1);
            let next = next(u32::try_from(place).unwrap());
            mbr_entry(&mut disk, place * 512 + 462, 0x05, next, 100);
        }
        table(&disk, None).unwrap()
    };
    assert!(disk(&|place| 3 - place % 3).fault.unwrap().contains("circle"));
    assert!(disk(&|place| 2 * place).fault.is_none(), "beyond the device");
    assert!(disk(&|place| place + 1).fault.unwrap().contains("more than 128"));
    assert!(disk(&|_| 5).fault.unwrap().contains("circle"));
    let far = disk(&|_| u32::MAX);
    assert_eq!(far.partitions.len(), 2, "{far:?}");
}

#[test]
fn partitions_of_an_mbr_that_cannot_be_right_have_faults() {
    let mut disk = vec![0; 8 * MIB];
    put(&mut disk, 510, b"\x55\xaa");
    mbr_entry(&mut disk, 446, 0x83, 2048, 2048);
    mbr_entry(&mut disk, 462, 0x83, 4000, 100);
    mbr_entry(&mut disk, 478, 0x83, 8192, u32::MAX);
    mbr_entry(&mut disk, 494, 0x83, u32::MAX, u32::MAX);
    assert_eq!(faults(&table(&disk, None).unwrap()), [true; 4]);
    // A logical partition outside of its extended one.
    mbr_entry(&mut disk, 462, 0x0f, 4096, 100);
    mbr_entry(&mut disk, 478, 0, 0, 0);
    mbr_entry(&mut disk, 494, 0, 0, 0);
    put(&mut disk, 4096 * 512 + 510, b"\x55\xaa");
    mbr_entry(&mut disk, 4096 * 512 + 446, 0x83, 90, 50);
    assert_eq!(faults(&table(&disk, None).unwrap()), [false, true, true]);
}

proptest::proptest! {
    /// Tables of any bytes with right checksums.
    #[test]
    fn any_table(
        entries in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..2048),
        boot in proptest::collection::vec(proptest::prelude::any::<u8>(), 64),
    ) {
        let mut disk = gpt_disk(512, &[]);
        put(&mut disk, 1024, &entries);
        seal(&mut disk, 512, 1);
        table(&disk, None).unwrap();
        put(&mut disk, 446, &boot);
        let _ = table(&disk, None);
        put(&mut disk, 512, &[0; 92]);
        let _ = table(&disk, None);
    }
}
