//! Walks logs that a mounted kernel wrote, in the order of a replay.

use super::*;
use crate::testing::Image;
use crate::{BlockNo, InodeNo};

/// The journal's superblock, and its blocks in order.
fn journal_of(image: &Image) -> (JournalSuperblock, Vec<BlockNo>) {
    let blocks = image.file_blocks(InodeNo(8));
    let (size, count) = (image.geometry().block_size, blocks.len() as u64);
    let bytes = image.block(blocks[0]);
    let sb = JournalSuperblock::parse(bytes, size, count).unwrap();
    assert_eq!((sb.length() as usize, sb.errno()), (blocks.len(), 0));
    assert!(JournalSuperblock::parse(bytes, size, count - 1).is_err());
    assert!(JournalSuperblock::parse(bytes, size * 2, count).is_err());
    (sb, blocks)
}

#[test]
fn the_journal_of_mke2fs_checks() {
    for (name, args) in [
        ("journal", "-t ext4"),
        ("journal-fast-commit", "-t ext4 -O fast_commit"),
        ("journal-1k", "-t ext4 -b 1024"),
    ] {
        let image = Image::make(name, args, "64m");
        assert_eq!(journal_of(&image).0.start(), 0);
    }
}

/// Walks the log and verifies all checksums. Returns the numbers of images, revokes and commits.
fn walk_log(image: &Image) -> (usize, usize, usize) {
    let (sb, blocks) = journal_of(image);
    let sums = sb.features().has_checksums();
    let (seed, format) = (checksum_seed(&sb.uuid()), TagFormat::new(sb.features()));
    let next = |at: u32| if at + 1 == sb.log_end().unwrap() { sb.first() } else { at + 1 };
    let (mut images, mut revokes, mut commits) = (0, 0, 0);
    let (mut tid, mut at) = (sb.sequence(), sb.start());
    assert_ne!(at, 0, "the log is not empty");
    loop {
        let block = image.block(blocks[at as usize]);
        let Some((kind, _)) = header(block).filter(|found| found.1 == tid) else { break };
        if sums && kind != BlockType::Commit {
            check_tail(seed, block).unwrap();
        }
        at = next(at);
        match kind {
            BlockType::Descriptor => {
                for tag in tags(block, format).map(Result::unwrap) {
                    let copy = image.block(blocks[at as usize]);
                    assert!(image.geometry().holds(tag.block));
                    let sum = image_checksum(seed, tid, copy);
                    assert!(format.sum_matches(&tag, sum), "block {}", tag.block);
                    images += 1;
                    at = next(at);
                }
            }
            BlockType::Revoke => revokes += revoked(block, format).unwrap().count(),
            BlockType::Commit => {
                assert!(!sums || CommitBlock::sum_matches(block, seed));
                let commit = CommitBlock::parse(block).unwrap();
                // Our encoder gives the same block.
                assert_eq!(commit.to_block(block.len(), tid, sums.then_some(seed)), block);
                (tid, commits) = (tid.next(), commits + 1);
            }
            BlockType::Superblock => panic!("a superblock in the log"),
        }
    }
    (images, revokes, commits)
}

/// Creates and removes directories, so that the log holds tags and revokes.
fn churn(root: &std::path::Path) {
    let sync = || std::fs::File::open(root).unwrap().sync_all().unwrap();
    for round in 0..3 {
        for number in 0..40 {
            std::fs::create_dir(root.join(format!("dir-{round}-{number}"))).unwrap();
        }
        sync();
        for number in 0..40 {
            std::fs::remove_dir(root.join(format!("dir-{round}-{number}"))).unwrap();
        }
        sync();
    }
}

#[test]
fn logs_of_the_kernel_verify() {
    let kinds = [
        ("log", "-t ext4", 0x12),
        ("log-32bit", "-t ext4 -O ^64bit", 0x10),
        ("log-without-csum", "-t ext4 -O ^metadata_csum", 2),
        ("log-32bit-without-csum", "-t ext4 -O ^metadata_csum,^64bit -b 1024", 0),
    ];
    for (name, args, incompat) in kinds {
        let image = Image::interrupted(name, args, "64m", churn);
        let (sb, _) = journal_of(&image);
        // The kernel sets the feature "revoke" in memory and stores it later or never.
        let unsure = JournalFeatures::ASYNC_COMMIT | JournalFeatures::REVOKE;
        assert_eq!(sb.features().incompat & !unsure, incompat, "{args}");
        let (images, revokes, commits) = walk_log(&image);
        assert!(images > 20 && revokes >= 40 && commits >= 6, "{images} {revokes} {commits}");
    }
}
