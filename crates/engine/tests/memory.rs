//! Bounds of a volume's caches. Eviction loses no state.

mod common;

use common::Image;
use nextent::inodes::{Access, InodeNo, Inodes, NewNode, ROOT_INO, Shrink};
use nextent::{Cred, Error, OpenOptions};
use nextent_device::{Fault, FaultDevice, MemoryDevice, OpKind, RecordingDevice, Rule};
use nextent_sync::{Arc, Duration, thread};
use nextent_testkit::{e2fs, need};

const FILES: usize = 20_000;
/// The limit of the caches.
const CACHE: u64 = 2 << 20;

fn assert_clean(device: &MemoryDevice) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    device.save(&path).unwrap();
    e2fs::assert_clean(&path);
}

fn create(volume: &Inodes, name: &str) -> InodeNo {
    let root = Cred::root();
    volume.mknod(&root, ROOT_INO, name.as_bytes(), NewNode::Regular, 0o644).unwrap().ino
}

/// Opens a volume with small caches and makes many files in its root. Returns their numbers.
fn many(device: &Arc<MemoryDevice>) -> (Inodes, Vec<InodeNo>) {
    let options = OpenOptions::new().cache_bytes(CACHE);
    let volume = Inodes::open(device.clone(), &options).unwrap();
    let mut files = Vec::new();
    for n in 0..FILES {
        files.push(create(&volume, &format!("file{n}")));
        if n % 1000 == 0 {
            volume.sync().unwrap();
        }
    }
    volume.sync().unwrap();
    (volume, files)
}

fn image() -> Result<Arc<MemoryDevice>, nextent_testkit::Skip> {
    let image = Image::make(64 << 20, &["-t", "ext4", "-N", "24000"])?;
    Ok(Arc::new(MemoryDevice::load(&image.path()).unwrap()))
}

/// Half of the limit is for inodes and half for blocks; the last lookups may exceed it.
#[track_caller]
fn assert_bounded(volume: &Inodes) {
    let usage = volume.cache_usage();
    let bytes = usage.inode_bytes as u64;
    assert!(bytes <= CACHE, "{usage:?}");
    assert!(usage.block_bytes as u64 <= 4 * CACHE, "{usage:?}");
}

#[test]
fn a_walk_stays_within_the_limit_and_pins_survive() {
    let device = need!(image());
    let (volume, files) = many(&device);
    volume.shrink_caches(Shrink::ToBound);
    for _ in 0..2 {
        for ino in &files {
            volume.pin(*ino).unwrap();
        }
        assert_bounded(&volume);
    }
    let usage = volume.cache_usage();
    assert!(usage.pinned + usage.inodes >= FILES && usage.pinned > FILES / 2, "{usage:?}");

    let mut pinned = volume.pinned();
    pinned.sort_unstable();
    let mut expected = files.clone();
    expected.sort_unstable();
    assert_eq!(pinned, expected);

    // A pinned number without an object stays in use, with and without a name.
    let root = Cred::root();
    let (pinned, kept) = (files[10], files[11]);
    volume.unlink(&root, ROOT_INO, b"file10").unwrap();
    volume.sync().unwrap();
    volume.shrink_caches(Shrink::All);
    assert_eq!(volume.getattr(pinned).unwrap().links, 0);
    let others: Vec<_> = (0..300).map(|n| create(&volume, &format!("other{n}"))).collect();
    assert!(!others.contains(&pinned));
    volume.unpin(pinned, 1).unwrap();
    assert_eq!(volume.getattr(pinned).unwrap().links, 0);
    volume.unpin(pinned, 1).unwrap();
    assert!(matches!(volume.getattr(pinned), Err(Error::NotFound)));
    assert!(matches!(volume.unpin(pinned, 1), Err(Error::Invalid)));
    assert!(matches!(volume.unpin(kept, 3), Err(Error::Invalid)));

    for ino in files.iter().filter(|ino| **ino != pinned) {
        volume.unpin(*ino, 2).unwrap();
    }
    volume.sync().unwrap();
    volume.shrink_caches(Shrink::All);
    let usage = volume.cache_usage();
    assert_eq!((usage.pinned, usage.inodes), (0, 0), "{usage:?}");
    assert_eq!(volume.pinned(), []);
    assert!(usage.block_bytes < 1 << 20, "{usage:?}");
    assert_eq!(volume.getattr(kept).unwrap().links, 1);
    common::close(&volume);
    assert_clean(&device);
}

#[test]
fn the_last_unpin_drops_a_clean_inode() {
    let device = need!(image());
    let (volume, files) = many(&device);
    volume.shrink_caches(Shrink::All);
    let some = &files[..16];
    for ino in some {
        volume.pin(*ino).unwrap();
    }
    assert!(volume.cache_usage().inodes >= 16);
    let before = volume.cache_usage().inodes;
    volume.open_file(&Cred::root(), some[0], Access::READ).unwrap();
    for ino in some {
        volume.unpin(*ino, 1).unwrap();
    }
    assert_eq!(volume.cache_usage().inodes, before - 15, "all but the open one");
    volume.release(some[0]).unwrap();
    common::close(&volume);
    assert_clean(&device);
}

/// A file that reuses an inode number has another generation, even if the former inode was evicted.
#[test]
fn generations_differ_after_eviction() {
    let device = need!(image());
    let options = OpenOptions::new().now(nextent::DiskTime::new(1_700_000_000, 0));
    let volume = Inodes::open(device.clone(), &options).unwrap();
    let mut seen = std::collections::HashMap::new();
    for _ in 0..8 {
        let ino = create(&volume, "again");
        let generation = volume.getattr(ino).unwrap().generation;
        let older = seen.insert(ino, generation);
        assert_ne!(older, Some(generation), "inode {ino:?}");
        volume.unlink(&Cred::root(), ROOT_INO, b"again").unwrap();
        volume.sync().unwrap();
        volume.shrink_caches(Shrink::All);
    }
    assert!(seen.len() < 8, "no number was used again");
    common::close(&volume);
    assert_clean(&device);
}

/// An inode with a change in the committing transaction stays in memory, so an fsync by number
/// waits for that commit.
#[test]
fn fsync_waits_for_a_running_commit() {
    let image = need!(Image::make(64 << 20, &["-t", "ext4"]));
    let base = MemoryDevice::load(&image.path()).unwrap();
    let device = Arc::new(FaultDevice::new(RecordingDevice::new(base), 1));
    let options = OpenOptions::new().commit_interval(Duration::ZERO);
    let volume = Inodes::open(device.clone(), &options).unwrap();
    let (one, other) = (create(&volume, "one"), create(&volume, "other"));
    volume.sync().unwrap();
    let chmod = |ino| {
        let mode =
            nextent::inodes::SetAttr { mode: Some(0o600), ..nextent::inodes::SetAttr::default() };
        volume.setattr(&Cred::root(), ino, &mode).unwrap();
    };
    chmod(one);
    chmod(other);
    let struck = device.struck();
    device.add(Rule::on(OpKind::Flush, Fault::Delay(Duration::from_millis(300))).times(1));
    thread::scope(|scope| {
        scope.spawn(|| volume.fsync(one).unwrap());
        while device.struck() == struck {
            thread::yield_now();
        }
        // The commit has rendered both inodes and waits for its flush.
        volume.shrink_caches(Shrink::All);
        volume.fsync(other).unwrap();
        let recording = device.inner().recording();
        let left = recording.image_at(recording.stable_at(recording.events().len()));
        let left = Inodes::open(Arc::new(left), &OpenOptions::default()).unwrap();
        assert_eq!(left.getattr(other).unwrap().mode, 0o600, "lost though it was synced");
    });
    common::close(&volume);
    assert_clean(device.inner().inner());
}

/// The allocator's limit for loaded groups, and what one search adds before the next eviction.
const GROUPS: usize = 41 << 20;

#[track_caller]
fn assert_few_groups(volume: &Inodes) {
    let usage = volume.cache_usage();
    assert!(usage.group_bytes <= GROUPS && usage.groups > 0, "{usage:?}");
}

/// The allocator evicts groups of a volume of 1 TiB, all of which would take 150 MiB. Their
/// allocated blocks stay allocated.
#[test]
fn groups_are_evicted() {
    let device = Arc::new(MemoryDevice::new(1 << 40));
    let mut options = nextent::mkfs::MkfsOptions::default();
    options.journal.size = Some(64 << 20);
    options.inode_count = Some(1 << 16);
    nextent::mkfs::make(&*device, &options).unwrap();
    let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
    let free = volume.statfs().unwrap().blocks_free;
    let trimmed = volume.trim(0..1 << 40, 0).unwrap();
    assert_eq!(trimmed, free * 4096);
    assert_few_groups(&volume);
    let root = Cred::root();
    let file = create(&volume, "file");
    let mode = nextent::inodes::FallocateMode::Allocate;
    volume.fallocate(&root, file, mode, 0, 700 << 30).unwrap();
    // Groups that the running transaction changed cannot be evicted.
    assert!(volume.cache_usage().group_bytes <= GROUPS + (10 << 20), "{:?}", volume.cache_usage());
    volume.sync().unwrap();
    volume.trim(0..1 << 40, 0).unwrap();
    assert_few_groups(&volume);
    // No free run is long enough, so the search visits each group that may have one.
    let other = create(&volume, "other");
    let full = volume.fallocate(&root, other, mode, 0, 400 << 30);
    assert!(matches!(full, Err(Error::NoSpace)), "{full:?}");
    volume.unlink(&root, ROOT_INO, b"other").unwrap();
    volume.unlink(&root, ROOT_INO, b"file").unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.trim(0..1 << 40, 0).unwrap(), free * 4096);
    assert_few_groups(&volume);
    common::close(&volume);
    let report = nextent::check::check(device, &nextent::check::CheckOptions::default(), &|_| ());
    let report = report.unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}
