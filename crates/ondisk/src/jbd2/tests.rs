use super::*;
use crate::BlockNo;
use proptest::prelude::*;

fn formats() -> Vec<TagFormat> {
    [0, 2, 8, 10, 16, 18]
        .map(|incompat| TagFormat::new(JournalFeatures { incompat, ..Default::default() }))
        .to_vec()
}

#[test]
fn tags_round_trip() {
    for format in formats() {
        let mut writer = DescriptorWriter::new(1024, format, Tid(7));
        let mut n = 0;
        while writer.has_room() {
            writer.push(BlockNo(100 + n), n % 3 == 0, n as u32 * 17);
            n += 1;
        }
        assert!(n as usize >= format.tags_per_block(1024));
        let block = writer.finish(99);
        assert_eq!(header(&block), Some((BlockType::Descriptor, Tid(7))));
        if format.tail() > 0 {
            check_tail(99, &block).unwrap();
        }
        let read: Vec<Tag> = tags(&block, format).map(Result::unwrap).collect();
        assert_eq!(read.len(), n as usize);
        for (i, tag) in read.iter().enumerate() {
            assert_eq!((tag.block, tag.escaped), (BlockNo(100 + i as u64), i % 3 == 0));
            assert!(format.sum_matches(tag, i as u32 * 17));
        }
    }
}

#[test]
fn revokes_round_trip() {
    for format in formats() {
        let mut writer = RevokeWriter::new(1024, format, Tid(7));
        let mut n = 0;
        while writer.push(BlockNo(n * 3)) {
            n += 1;
        }
        assert_eq!(n as usize, format.revokes_per_block(1024));
        let block = writer.finish(5);
        let read: Vec<_> = revoked(&block, format).unwrap().collect();
        assert_eq!(read, (0..n).map(|i| BlockNo(i * 3)).collect::<Vec<_>>());
    }
}

#[test]
fn superblock_and_commit_block_verify_after_encoding() {
    let mut sb = JournalSuperblock::new(1024, 1024, [3; 16]);
    sb.set_features(JournalFeatures { incompat: 0x12, ..Default::default() });
    sb.set_tail(5, Tid(9));
    let mut bytes = sb.to_bytes();
    let read = JournalSuperblock::parse(&bytes, 1024, 1024).unwrap();
    assert_eq!((read.start(), read.sequence(), read.first()), (5, Tid(9), 1));
    bytes[0x1f] ^= 1;
    assert!(JournalSuperblock::parse(&bytes, 1024, 1024).is_err());

    let commit = CommitBlock { seconds: 1 << 33, nanos: 5, crc32: None };
    let mut block = commit.to_block(1024, Tid(2), Some(8));
    assert_eq!(CommitBlock::parse(&block), Some(commit));
    assert!(CommitBlock::sum_matches(&block, 8));
    block[0x31] ^= 1;
    assert!(!CommitBlock::sum_matches(&block, 8));
}

#[test]
fn crc32_be_has_its_published_check_value() {
    // The published check value of CRC-32/BZIP2, before its final inversion.
    assert_eq!(!crc32_be(!0, b"123456789"), 0xfc89_1918);
}

proptest! {
    #[test]
    fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..1100)) {
        for format in formats() {
            prop_assert!(tags(&bytes, format).count() <= 1100);
            let _ = revoked(&bytes, format).map(|r| r.count());
        }
        let _ = (header(&bytes), CommitBlock::sum_matches(&bytes, 1), check_tail(1, &bytes));
        let _ = CommitBlock::parse(&bytes);
        if bytes.len() >= 8 {
            bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
            bytes[4..8].copy_from_slice(&[0, 0, 0, 4]);
        }
        let _ = JournalSuperblock::parse(&bytes, 1024, 1024);
    }
}
