use proptest::prelude::*;

use super::*;
use crate::jbd2::JournalSuperblock;
use crate::testing::Image;

#[test]
fn fast_commits_of_the_kernel_verify() {
    use std::io::Write;
    let work = |root: &std::path::Path| {
        std::fs::write(root.join("early"), "x").unwrap();
        // A full commit first: only then can fast commits start.
        let full = std::process::Command::new("sync").arg("-f").arg(root).status();
        assert!(full.is_ok_and(|status| status.success()));
        for number in 0..20u32 {
            let name = root.join(format!("file-{number}"));
            let mut file = std::fs::File::create(&name).unwrap();
            file.write_all(&[7; 9000]).unwrap();
            file.sync_all().unwrap();
            if number % 3 == 0 {
                file.set_len(100).unwrap();
                std::fs::hard_link(&name, root.join(format!("link-{number}"))).unwrap();
                std::fs::remove_file(&name).unwrap();
                file.sync_all().unwrap();
            }
        }
    };
    let args = "-t ext4 -O fast_commit -b 1024";
    let image = Image::interrupted("fast-commits", args, "64m", work);
    let blocks = image.file_blocks(InodeNo(8));
    let (size, count) = (image.geometry().block_size, blocks.len() as u64);
    let sb = JournalSuperblock::parse(image.block(blocks[0]), size, count).unwrap();
    // The block between the log and the area is unused.
    let area = (sb.log_end().unwrap() + 1..sb.length()).map(|at| image.block(blocks[at as usize]));
    let first = Records::new(area.clone().next().unwrap()).next();
    let Some(Ok(Record::Head { tid, features: 0 })) = first else {
        panic!("{first:?}");
    };
    let mut scanner = Scanner::new(tid);
    let _ = area.clone().try_for_each(|block| match scanner.block(block) {
        Next::Block => Some(()),
        Next::Stop => None,
    });
    let records: Vec<_> =
        area.flat_map(Records::new).take(scanner.valid_records()).map(Result::unwrap).collect();
    let count = |of: fn(&Record<'_>) -> bool| records.iter().filter(|r| of(r)).count();
    assert!(count(|r| matches!(r, Record::Tail { .. })) >= 5, "{records:?}");
    assert!(count(|r| matches!(r, Record::Create(_))) >= 3);
    assert!(count(|r| matches!(r, Record::Inode(..))) >= 3);
    assert!(count(|r| matches!(r, Record::AddRange(..))) >= 3);
}

/// A record's bytes.
fn tlv(tag: u16, value: &[u8]) -> Vec<u8> {
    let len = value.len() as u16;
    [&tag.to_le_bytes()[..], &len.to_le_bytes(), value].concat()
}

fn word(value: u32) -> [u8; 4] {
    value.to_le_bytes()
}

/// An area of one block: head, one deleted range, tail.
fn area(head_tid: u32, tail_tid: u32) -> Vec<u8> {
    let mut bytes = tlv(9, &[word(0), word(head_tid)].concat());
    bytes.extend(tlv(2, &[word(12), word(5), word(7)].concat()));
    let mut tail = tlv(8, &word(tail_tid));
    tail[2..4].copy_from_slice(&16u16.to_le_bytes());
    bytes.extend(tail);
    bytes.extend(word(csum(0, &bytes)));
    // The tail's length covers the rest of the block.
    bytes.extend([0; 8]);
    bytes
}

#[test]
fn only_intact_commits_of_the_right_transaction_are_valid() {
    let scan = |bytes: &[u8]| {
        let mut scanner = Scanner::new(Tid(3));
        let next = scanner.block(bytes);
        (scanner.valid_records(), next)
    };
    let good = area(3, 3);
    assert_eq!(scan(&good), (3, Next::Block));
    let records: Vec<_> = Records::new(&good).map(Result::unwrap).collect();
    assert_eq!(records[1], Record::DeleteRange(InodeNo(12), FileBlock(5), 7));
    assert_eq!(scan(&area(3, 4)), (0, Next::Stop));
    assert_eq!(scan(&area(4, 3)), (0, Next::Stop));
    let mut damaged = good.clone();
    damaged[20] ^= 1;
    assert_eq!(scan(&damaged), (0, Next::Stop));
    let mut more = good.clone();
    more.extend(tlv(5, &[&word(2)[..], &word(12), b"name"].concat()));
    assert_eq!(scan(&more), (3, Next::Block));
    more.extend(tlv(77, b""));
    assert_eq!(scan(&more), (3, Next::Stop));
    assert_eq!(scan(&good[12..]), (0, Next::Stop));
}

proptest! {
    #[test]
    fn no_bytes_panic(
        records in proptest::collection::vec(
            (0u16..11, proptest::collection::vec(any::<u8>(), 0..40)), 0..10,
        ),
        noise in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut bytes: Vec<u8> = records.iter().flat_map(|(tag, value)| tlv(*tag, value)).collect();
        bytes.extend(noise);
        let _ = Records::new(&bytes).count();
        let mut scanner = Scanner::new(Tid(1));
        scanner.block(&bytes);
        prop_assert_eq!(scanner.valid_records(), 0);
    }
}
