//! One image of each format, and random bytes.

use super::*;
use crate::testing::Image;
use proptest::prelude::*;

fn look(bytes: &[u8]) -> Foreign {
    let mut reads = 0;
    let found = Foreign::identify(bytes.len() as u64, &mut |at, buf| {
        reads += 1;
        let from = usize::try_from(at).ok().and_then(|at| bytes.get(at..)?.get(..buf.len()));
        from.inspect(|from| buf.copy_from_slice(from)).is_some()
    });
    assert!(reads < 1000, "bounded");
    found
}

fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    bytes[at..at + what.len()].copy_from_slice(what);
}

#[test]
fn empty_and_short_devices_are_named() {
    assert_eq!(look(&[]), Foreign::Empty);
    assert_eq!(look(&[0; 100]), Foreign::Short { bytes: 100 });
    assert_eq!(look(&[7; 100]), Foreign::Short { bytes: 100 });
    assert_eq!(look(&[0; 9000]), Foreign::Zeros);
    assert_eq!(look(&[7; 9000]), Foreign::Unknown { magic: 0x0707 });
    assert!(look(b"\x1f\x8b\x08\0").to_string().contains("gzip"));
    for text in [look(&[]), look(&[0; 9000])].map(|found| found.to_string()) {
        assert!(text.contains("no ext file system here") && text.contains("mkfs"), "{text}");
    }
}

#[test]
fn a_gpt_names_its_partitions() {
    let mut disk = vec![0; 4 << 20];
    put(&mut disk, 510, b"\x55\xaa");
    put(&mut disk, 512, b"EFI PART");
    put(&mut disk, 512 + 72, &2u64.to_le_bytes());
    put(&mut disk, 512 + 80, &4u32.to_le_bytes());
    put(&mut disk, 512 + 84, &128u32.to_le_bytes());
    for (n, (first, last)) in [(2048u64, 4095u64), (4096, 6143)].into_iter().enumerate() {
        let at = 1024 + 128 * n;
        put(&mut disk, at, &[9; 16]);
        put(&mut disk, at + 32, &first.to_le_bytes());
        put(&mut disk, at + 40, &last.to_le_bytes());
        let name: Vec<u8> = "ro\u{1b}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        put(&mut disk, at + 56, &name);
    }
    put(&mut disk, 4096 * 512 + 0x438, b"\x53\xef");
    let found = look(&disk);
    let Foreign::Disk(table) = &found else { panic!("{found:?}") };
    assert_eq!(table.partitions.len(), 2);
    let (first, second) = (&table.partitions[0], &table.partitions[1]);
    assert_eq!((first.number, first.offset, first.size), (1, 1 << 20, 1 << 20));
    assert!(second.ext && !first.ext);
    let text = found.to_string();
    assert!(text.contains("offset=2097152") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn an_mbr_names_its_partitions() {
    let mut disk = vec![0; 4 << 20];
    let entry = |disk: &mut [u8], at: usize, kind: u8, first: u32, count: u32| {
        put(disk, at + 4, &[kind]);
        put(disk, at + 8, &first.to_le_bytes());
        put(disk, at + 12, &count.to_le_bytes());
    };
    put(&mut disk, 510, b"\x55\xaa");
    entry(&mut disk, 446, 0x83, 2048, 1000);
    entry(&mut disk, 462, 0x05, 4096, 4000);
    put(&mut disk, 4096 * 512 + 510, b"\x55\xaa");
    entry(&mut disk, 4096 * 512 + 446, 0x83, 10, 100);
    entry(&mut disk, 4096 * 512 + 462, 0x05, 200, 100);
    put(&mut disk, 4296 * 512 + 510, b"\x55\xaa");
    entry(&mut disk, 4296 * 512 + 446, 0x83, 10, 100);
    // The chain of logical partitions returns to its start.
    entry(&mut disk, 4296 * 512 + 462, 0x05, 200, 100);
    let found = look(&disk);
    let Foreign::Disk(table) = &found else { panic!("{found:?}") };
    let places: Vec<_> = table.partitions.iter().map(|p| (p.number, p.offset / 512)).collect();
    assert_eq!(places, [(1, 2048), (5, 4106), (6, 4306)]);
    assert!(found.to_string().contains("partition 5 at byte 2102272 (51200 bytes), partition 6"));
    // A boot sector without a partition table.
    let mut boot = vec![0; 9000];
    put(&mut boot, 510, b"\x55\xaa");
    assert!(look(&boot).to_string().contains("boot sector"));
}

#[test]
fn a_lost_superblock_is_found_in_its_backup() {
    let mut image = Image::make("lost-superblock", "-t ext4 -b 1024", "32m");
    let image = &mut image.bytes;
    image[..2048].fill(0);
    let found = Foreign::Backup { block: 8193, block_size: 1024, zeros: true };
    assert_eq!(look(image), found);
    image[..2048].fill(7);
    assert!(look(image).to_string().contains("e2fsck -b 8193 -B 1024"));
    image[8193 << 10..].fill(0);
    assert_eq!(look(image), Foreign::Unknown { magic: 0x0707 });
}

#[test]
fn every_row_of_the_table_is_found() {
    for (magics, name, _) in formats::rows() {
        let mut bytes = vec![0; HEAD];
        for (at, magic) in *magics {
            put(&mut bytes, *at, magic);
        }
        let found = look(&bytes);
        assert!(matches!(&found, Foreign::Format { name: n, .. } if n == name), "{name}: {found}");
    }
}

proptest! {
    #[test]
    fn any_bytes(
        mut bytes: Vec<u8>,
        gpt: bool,
        tail in prop::collection::vec(any::<u8>(), 0..2000),
    ) {
        bytes.resize(510, 1);
        bytes.extend(b"\x55\xaa");
        if gpt {
            bytes.extend(b"EFI PART");
        }
        bytes.extend(tail);
        let _ = look(&bytes).to_string();
    }
}
