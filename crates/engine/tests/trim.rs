//! `FITRIM` on a volume. It discards only blocks in the caller's range that are free now and after
//! a crash.

mod common;

use common::{Image, VolumeFs, VolumeTree, close};
use nextent::inodes::Inodes;
use nextent::{Cred, Error, OpenOptions};
use nextent_device::{BlockDevice, Event, MemoryDevice, RecordingDevice};
use nextent_sync::{Arc, Duration};
use nextent_testkit::tree::{Compare, assert_same, walk};
use nextent_testkit::{PosixFs, Skip, e2fs, need};
use std::ops::Range;

type Device = Arc<RecordingDevice<MemoryDevice>>;

/// A volume with files, and free runs between them.
fn used(args: &[&str]) -> Result<(Image, Device, Inodes), Skip> {
    let image = Image::make(64 << 20, args)?;
    let base = MemoryDevice::load(&image.path()).unwrap();
    let device = Arc::new(RecordingDevice::new(base));
    let options = OpenOptions::new().commit_interval(Duration::ZERO);
    let volume = Inodes::open(device.clone(), &options).unwrap();
    let fs = VolumeFs(&volume);
    for n in 0..40usize {
        let name = format!("/file{n}");
        fs.create(&name, 0o644).unwrap();
        fs.write(&name, 0, &vec![n as u8 + 1; 5000 * n]).unwrap();
    }
    volume.sync().unwrap();
    for n in (0..40).filter(|n| n % 3 == 0) {
        fs.unlink(&format!("/file{n}")).unwrap();
    }
    volume.sync().unwrap();
    Ok((image, device, volume))
}

/// The byte ranges that a trim discarded.
fn trim(device: &Device, volume: &Inodes, range: Range<u64>, min: u64) -> Vec<Range<u64>> {
    let before = device.events();
    let done = volume.trim(range, min).unwrap();
    let discarded: Vec<Range<u64>> = device.recording().events()[before..]
        .iter()
        .filter_map(|event| match event {
            Event::Discard { offset, len } => Some(*offset..offset + len),
            _ => None,
        })
        .collect();
    assert_eq!(done, discarded.iter().map(|run| run.end - run.start).sum::<u64>());
    discarded
}

fn spoil(device: &MemoryDevice, discarded: &[Range<u64>]) {
    for run in discarded {
        device.write_at(run.start, &vec![0xdd; (run.end - run.start) as usize]).unwrap();
    }
}

const KINDS: [&[&str]; 2] = [&["-t", "ext4"], &["-t", "ext3", "-b", "1024"]];

#[test]
fn only_free_blocks_are_discarded() {
    for args in KINDS {
        let (image, device, volume) = need!(used(args));
        let tree = walk(&VolumeTree(&volume)).unwrap();
        let discarded = trim(&device, &volume, 0..u64::MAX, 0);
        let total: u64 = discarded.iter().map(|run| run.end - run.start).sum();
        let stat = volume.statfs().unwrap();
        // Trim may leave out the windows of growing files.
        let free = stat.blocks_free * u64::from(stat.block_size);
        assert!(total <= free && total > free / 2, "{total} of {free}");
        close(&volume);
        let spoiled = Arc::new(device.inner().snapshot());
        spoil(&spoiled, &discarded);
        spoiled.save(&image.path()).unwrap();
        e2fs::assert_clean(&image.path());
        let options = OpenOptions::new().read_only(true);
        let volume = Inodes::open(spoiled, &options).unwrap();
        assert_same(&tree, &walk(&VolumeTree(&volume)).unwrap(), &Compare::default());
    }
}

#[test]
fn range_and_minimum_length() {
    let (_image, device, volume) = need!(used(KINDS[1]));
    let (start, end, min) = (9 << 20, 23 << 20, 64 << 10);
    let discarded = trim(&device, &volume, start..end, min);
    assert!(!discarded.is_empty());
    for run in discarded {
        assert!(run.start >= start && run.end <= end, "{run:?}");
        assert!(run.end - run.start >= min, "{run:?}");
    }
    assert!(trim(&device, &volume, 5000..5500, 0).is_empty(), "less than a block");
    assert!(trim(&device, &volume, 1 << 40..1 << 41, 0).is_empty(), "past the end");
    assert!(trim(&device, &volume, 0..u64::MAX, 1 << 40).is_empty(), "no run is so long");
    close(&volume);
    let refused = volume.trim(0..u64::MAX, 0);
    assert!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
}

/// The removal of a file is not durable yet, so its blocks are not discarded.
#[test]
fn blocks_that_a_crash_restores_are_not_discarded() {
    let (_image, device, volume) = need!(used(KINDS[0]));
    let tree = walk(&VolumeTree(&volume)).unwrap();
    let fs = VolumeFs(&volume);
    for n in (0..40).filter(|n| n % 3 == 1) {
        fs.unlink(&format!("/file{n}")).unwrap();
    }
    let discarded = trim(&device, &volume, 0..u64::MAX, 0);
    assert!(!discarded.is_empty());
    let crashed = Arc::new(device.inner().snapshot());
    spoil(&crashed, &discarded);
    let recovered = Inodes::open(crashed, &OpenOptions::default()).unwrap();
    let how = Compare { times: false, ..Compare::default() };
    assert_same(&tree, &walk(&VolumeTree(&recovered)).unwrap(), &how);
    // After the removal is durable, trim discards them.
    volume.sync().unwrap();
    assert!(!trim(&device, &volume, 0..u64::MAX, 0).is_empty());
    assert!(volume.resolve(&Cred::root(), b"/file1", false).is_err());
    close(&volume);
}
