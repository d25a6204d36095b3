//! One image of each format, and random bytes. `partition_tests` has those of partition tables.

use super::*;
use crate::testing::Image;
use proptest::prelude::*;

pub(super) fn look(bytes: &[u8]) -> Foreign {
    let mut reads = 0;
    let found = Foreign::identify(bytes.len() as u64, &mut |at, buf| {
        reads += 1;
        let from = usize::try_from(at).ok().and_then(|at| bytes.get(at..)?.get(..buf.len()));
        from.inspect(|from| buf.copy_from_slice(from)).is_some()
    });
    assert!(reads < 1000, "bounded");
    found
}

pub(super) fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
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
