//! Damage in a log that has committed transactions: recovery never drops one silently.

mod common;

use common::{Image, VolumeFs, close};
use nextent::OpenOptions;
use nextent::inodes::Inodes;
use nextent_device::{BlockDevice, MemoryDevice};
use nextent_ondisk::jbd2::{self, BlockType, JournalFeatures, JournalSuperblock, TagFormat};
use nextent_sync::Arc;
use nextent_testkit::{PosixFs, Skip, e2fs, need};

const BLOCK: usize = 1024;

fn read(device: &dyn BlockDevice, at: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    device.read_at(at, &mut bytes).unwrap();
    bytes
}

/// The block number and contents of the journal's superblock: the only block that parses as one.
fn journal(device: &dyn BlockDevice) -> (u64, JournalSuperblock) {
    let blocks = (0..device.size()).step_by(BLOCK);
    let mut found = blocks.filter_map(|at| {
        let sb = JournalSuperblock::parse(&read(device, at), BLOCK as u32, u64::MAX);
        sb.ok().map(|sb| (at, sb))
    });
    found.next().expect("the image has a journal")
}

/// The descriptor, commit and revoke blocks of the log, in order.
fn log_blocks(device: &dyn BlockDevice) -> Vec<(u64, BlockType)> {
    let (at, sb) = journal(device);
    let format = TagFormat::new(sb.features());
    let mut at = at + u64::from(sb.start()) * BLOCK as u64;
    let mut tid = sb.sequence();
    let mut found = Vec::new();
    loop {
        let block = read(device, at);
        match jbd2::header(&block) {
            Some((kind, sequence)) if sequence == tid => {
                found.push((at, kind));
                if kind == BlockType::Descriptor {
                    at += jbd2::tags(&block, format).count() as u64 * BLOCK as u64;
                }
                if kind == BlockType::Commit {
                    tid = tid.next();
                }
            }
            _ => return found,
        }
        at += BLOCK as u64;
    }
}

/// A volume that was not closed and whose log has several transactions.
fn unclosed(args: &[&str]) -> Result<MemoryDevice, Skip> {
    let image = Image::make(16 << 20, args)?;
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
    for name in ["/a", "/b", "/c", "/d"] {
        VolumeFs(&volume).create(name, 0o644).unwrap();
        volume.sync().unwrap();
    }
    drop(volume);
    Ok(device.snapshot())
}

/// Gives each transaction a checksum of the first version, as `mount -o journal_checksum` does.
fn seal_as_version_1(device: &MemoryDevice) {
    let (start, mut sb) = journal(device);
    let features = JournalFeatures { compat: JournalFeatures::CHECKSUM_V1, ..sb.features() };
    sb.set_features(features);
    device.write_at(start, &sb.to_bytes()).unwrap();
    let mut crc = !0;
    for (at, kind) in log_blocks(device) {
        let mut block = read(device, at);
        match kind {
            BlockType::Descriptor => {
                crc = jbd2::crc32_be(crc, &block);
                for n in 1..=jbd2::tags(&block, TagFormat::new(features)).count() as u64 {
                    crc = jbd2::crc32_be(crc, &read(device, at + n * BLOCK as u64));
                }
            }
            BlockType::Commit => {
                (block[12], block[13]) = (1, 4);
                block[16..20].copy_from_slice(&crc.to_be_bytes());
                device.write_at(at, &block).unwrap();
                crc = !0;
            }
            _ => {}
        }
    }
}

/// Changes a byte of the device, and checks that the open fails and writes nothing.
fn assert_refused(sound: &MemoryDevice, at: u64) {
    let device = Arc::new(sound.snapshot());
    let mut byte = [0];
    device.read_at(at, &mut byte).unwrap();
    device.write_at(at, &[byte[0] ^ 0x40]).unwrap();
    let before = device.snapshot();
    let opened = Inodes::open(device.clone(), &OpenOptions::default()).map(drop);
    let error = opened.expect_err("a volume with a damaged log was opened").to_string();
    assert!(error.contains("wrong checksum"), "byte {at}: {error}");
    for block in (0..device.size()).step_by(BLOCK) {
        assert_eq!(read(&*device, block), read(&before, block), "byte {at} changed: {block}");
    }
}

/// The log's blocks of one kind; there are several transactions.
fn blocks_of_kind(device: &MemoryDevice, kind: BlockType) -> Vec<u64> {
    drop(Inodes::open(Arc::new(device.snapshot()), &OpenOptions::default()).unwrap());
    let own = log_blocks(device).into_iter();
    let found: Vec<_> = own.filter_map(|(at, own)| (own == kind).then_some(at)).collect();
    assert!(found.len() >= 4, "{} transactions", found.len());
    found
}

/// Changes bytes that only the checksums cover. A commit block with another header is no commit
/// block, and one with an earlier time is from an earlier pass over the log.
fn damage_is_refused(device: &MemoryDevice) {
    for at in blocks_of_kind(device, BlockType::Commit) {
        [12, 13, 17, 19].iter().for_each(|byte| assert_refused(device, at + byte));
    }
    for at in blocks_of_kind(device, BlockType::Descriptor) {
        [15, 29, 1023].iter().for_each(|byte| assert_refused(device, at + byte));
    }
}

#[test]
fn a_damaged_block_of_a_committed_transaction_is_refused() {
    damage_is_refused(&need!(unclosed(&["-t", "ext4", "-b", "1024"])));
}

#[test]
fn a_damaged_block_of_a_committed_transaction_is_refused_with_fast_commits() {
    damage_is_refused(&need!(unclosed(&["-t", "ext4", "-b", "1024", "-O", "fast_commit"])));
}

/// A checksum of the first version covers the images, too.
#[test]
fn damage_is_refused_with_checksums_of_the_first_version() {
    let device = need!(unclosed(&["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"]));
    seal_as_version_1(&device);
    damage_is_refused(&device);
    for at in blocks_of_kind(&device, BlockType::Descriptor) {
        assert_refused(&device, at + BLOCK as u64 + 500);
    }
}

/// With asynchronous commits the log may have a commit block without its transaction. Recovery ends
/// there.
#[test]
fn an_asynchronous_commit_block_may_lack_its_transaction() {
    let device = need!(unclosed(&["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"]));
    seal_as_version_1(&device);
    let (start, mut sb) = journal(&device);
    let features = sb.features();
    let incompat = features.incompat | JournalFeatures::ASYNC_COMMIT;
    sb.set_features(JournalFeatures { incompat, ..features });
    device.write_at(start, &sb.to_bytes()).unwrap();
    let last = *blocks_of_kind(&device, BlockType::Descriptor).last().unwrap();
    device.write_at(last + BLOCK as u64, &[0x55; 16]).unwrap();
    let found = blocks_of_kind(&device, BlockType::Commit).len();
    let device = Arc::new(device);
    let opened = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
    assert_eq!(opened.recovery().transactions as usize + 1, found);
    close(&opened);
    let image = tempfile::NamedTempFile::new().unwrap();
    device.save(image.path()).unwrap();
    e2fs::assert_clean(image.path());
}
