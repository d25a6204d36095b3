//! Layouts in which descriptors outgrow groups.

use std::path::PathBuf;

use nextent_device::{BlockDevice, FileDevice};
use nextent_ondisk::extent::Node;
use nextent_ondisk::jbd2::JournalSuperblock;
use nextent_ondisk::numbers::JOURNAL_INO;
use nextent_ondisk::superblock::state;
use nextent_sync::Arc;
use nextent_testkit::{e2fs, need};

use super::vacate::Vacated;
use super::volume::Volume;
use super::{ResizeOptions, Resized, resize};
use crate::error::{Error, Result};
use crate::mkfs::{self, MkfsOptions};
use crate::open::read_super;

/// An image file, which grows as its volume does.
struct Image {
    dir: tempfile::TempDir,
}

impl Image {
    /// A volume of groups of 256 blocks of 1 KiB, without blocks reserved for descriptors.
    fn make(blocks: u64, features: &str) -> Self {
        let image = Self { dir: tempfile::tempdir().unwrap() };
        std::fs::write(image.path(), []).unwrap();
        let features = format!("^resize_inode,^has_journal,^orphan_file,{features}");
        let options = MkfsOptions {
            size: Some(blocks << 10),
            block_size: Some(1024),
            blocks_per_group: Some(256),
            bytes_per_inode: Some(32 << 10),
            features,
            ..MkfsOptions::default()
        };
        mkfs::make(&*image.device(blocks), &options).unwrap();
        image
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// The image, with at least that many blocks.
    fn device(&self, blocks: u64) -> Arc<dyn BlockDevice> {
        // Without a lock: the child process of another test may hold a copy of it for a moment.
        let file = std::fs::OpenOptions::new().read(true).write(true).open(self.path()).unwrap();
        let len = file.metadata().unwrap().len();
        file.set_len(len.max(blocks << 10)).unwrap();
        Arc::new(FileDevice::from_open(file).unwrap())
    }

    fn resize(&self, blocks: u64, wide: Option<bool>) -> Result<Resized> {
        let options = ResizeOptions { wide, ..ResizeOptions::default() };
        resize(&self.device(blocks), blocks, &options, &|_| ())
    }

    fn check(&self) {
        need!(e2fs::e2fsck(&self.path())).assert_clean();
    }
}

/// With 4 groups, the last has a backup. It ends before the descriptors of 4000 groups do.
#[test]
fn descriptors_reach_beyond_the_old_end() {
    let image = Image::make(3 * 256 + 121, "64bit");
    image.check();
    let blocks = 2000 * 256 + 1;
    image.resize(blocks, None).unwrap();
    image.check();
}

/// Group 3 has a backup and ends with it.
#[test]
fn wider_descriptors_do_not_reach_beyond_the_end() {
    let image = Image::make(2187 * 256 + 131, "^64bit");
    image.check();
    assert!(matches!(image.resize(2187 * 256 + 131, Some(true)), Err(Error::Unsupported(_))));
    image.check();
}

/// A volume that asks for a check and has lost blocks does not even grow.
#[test]
fn a_volume_that_asks_for_a_check_is_checked() {
    let image = Image::make(4 * 256 + 1, "64bit");
    let leak = |used| {
        let device = image.device(0);
        let sb = read_super(&*device).unwrap();
        let mut volume = Volume::read(&device, sb, false).unwrap();
        volume.mark(500..501, used).unwrap();
        volume.commit().unwrap();
    };
    let more = 6 * 256 + 1;
    // The commit, without a journal, asks for a check, and no resize ends it.
    leak(true);
    assert!(matches!(image.resize(more, None), Err(Error::Corrupt(_))));
    leak(false);
    assert_eq!(image.resize(more, None).unwrap().blocks, more);
    image.check();
    let sb = read_super(&*image.device(0)).unwrap();
    assert_eq!(sb.state.get() & state::ERROR, state::ERROR);
}

/// The part of a log that stays holds the transaction before the move. The first one after it must
/// have a later number, or a crash in it could show recovery the older one's commit block.
#[test]
fn a_log_that_moves_in_part_goes_on_with_later_numbers() {
    let device: Arc<dyn BlockDevice> = Arc::new(nextent_device::MemoryDevice::new(32 << 20));
    let options = MkfsOptions { block_size: Some(1024), ..MkfsOptions::default() };
    mkfs::make(&*device, &options).unwrap();
    let sb = read_super(&*device).unwrap();
    let mut volume = Volume::read(&device, sb, false).unwrap();
    let first = |volume: &Volume| {
        let (inode, _) = volume.inode(JOURNAL_INO).unwrap();
        Node::new(&inode.block).unwrap().extent(0).start
    };
    let sequence = |volume: &Volume, block| {
        let bytes = volume.block(block).unwrap();
        JournalSuperblock::parse(&bytes, 1024, u64::MAX).unwrap().sequence()
    };
    let old = first(&volume);
    let end = volume.geo.blocks_count;
    let mut vacated = Vacated::default();
    vacated.add(std::iter::once(old.0..old.0 + 1));
    volume.begin_moves(vacated, end).unwrap();
    volume.move_journal().unwrap();
    let new = first(&volume);
    assert_ne!(new, old);
    // One commit went to the old log, and one to the new log.
    assert!(sequence(&volume, new).0 > sequence(&volume, old).0);
    volume.finish().unwrap();
    let path = tempfile::NamedTempFile::new().unwrap();
    let mut bytes = vec![0; 32 << 20];
    device.read_at(0, &mut bytes).unwrap();
    std::fs::write(path.path(), bytes).unwrap();
    need!(e2fs::e2fsck(path.path())).assert_clean();
}
