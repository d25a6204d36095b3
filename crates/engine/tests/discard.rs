//! Freed blocks are discarded after the commit that freed them is durable, and never what holds
//! data, whatever crash follows.

mod common;

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use common::{Image, KINDS, VolumeFs, close};
use nextent::OpenOptions;
use nextent::inodes::Inodes;
use nextent_device::{BlockDevice, Event, FileOptions, MemoryDevice, RecordingDevice};
use nextent_ondisk::Incompat;
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{Arc, Duration, thread};
use nextent_testkit::{
    CutInfo, Explorer, PosixFs, Skip, append_with_promises, change_with_promises, e2fs, need,
    run_together,
};

/// A device whose discards write bytes that nothing else writes, at once.
struct Spoiling(Arc<RecordingDevice<MemoryDevice>>);

impl BlockDevice for Spoiling {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.write_at(offset, &vec![0xdd; len as usize])
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.write_zeroes(offset, len)
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

/// A volume on such a device.
fn spoiled(image: &Image, options: &OpenOptions) -> (Arc<RecordingDevice<MemoryDevice>>, Inodes) {
    let base = MemoryDevice::load(&image.path()).unwrap();
    let device = Arc::new(RecordingDevice::new(base));
    let volume = Inodes::open(Arc::new(Spoiling(device.clone())), options).unwrap();
    (device, volume)
}

/// Bytes that the host has allocated for the image.
fn allocated(image: &Path) -> u64 {
    let file = std::fs::File::open(image).unwrap();
    file.sync_all().unwrap();
    std::fs::metadata(image).unwrap().blocks() * 512
}

/// Whether files of the test's directory can have holes punched.
fn can_punch() -> Result<(), Skip> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![1; 1 << 20]).unwrap();
    let device = common::open_file(&path, &FileOptions::new());
    device.discard(0, 1 << 20).map_err(|_| Skip::missing("holes in files"))
}

const MIB: u64 = 1 << 20;

#[test]
fn freed_blocks_of_an_image_become_holes() {
    need!(can_punch());
    for discard in [true, false] {
        let image = need!(Image::make(64 << 20, &["-t", "ext4"]));
        let options = OpenOptions::new().discard(discard);
        let volume = common::open(&image.path(), &options).unwrap();
        let fs = VolumeFs(&volume);
        let live: Vec<u8> = (0..4 * MIB).map(|n| (n % 251) as u8).collect();
        fs.create("/live", 0o644).unwrap();
        fs.create("/freed", 0o644).unwrap();
        for part in 0..16 {
            // In turns, so that freed blocks lie between live ones.
            let at = part * MIB / 4;
            fs.write("/live", at, &live[at as usize..][..MIB as usize / 4]).unwrap();
            fs.write("/freed", part * MIB, &vec![7; MIB as usize]).unwrap();
        }
        volume.sync().unwrap();
        let full = allocated(&image.path());
        fs.unlink("/freed").unwrap();
        let unlinked = allocated(&image.path());
        volume.sync().unwrap();
        let synced = allocated(&image.path());
        assert!(full <= unlinked + MIB, "nothing goes before the commit: {full}, {unlinked}");
        match discard {
            true => assert!(synced + 15 * MIB < full, "{full} bytes, then {synced}"),
            false => assert!(synced + MIB >= full, "{full} bytes, then {synced}"),
        }
        assert!(fs.read("/live", 0, live.len()).unwrap() == live);
        close(&volume);
        drop(volume);
        e2fs::assert_clean(&image.path());
        let volume = image.open();
        assert!(VolumeFs(&volume).read("/live", 0, live.len()).unwrap() == live);
        close(&volume);
    }
}

#[test]
fn nothing_is_discarded_without_the_option() {
    let image = need!(Image::make(32 << 20, &["-t", "ext4"]));
    for (discard, read_only) in [(false, false), (true, false), (true, true)] {
        let base = MemoryDevice::load(&image.path()).unwrap();
        let device = Arc::new(RecordingDevice::new(base));
        let options = OpenOptions::new().discard(discard).read_only(read_only);
        let volume = Inodes::open(device.clone(), &options).unwrap();
        let fs = VolumeFs(&volume);
        if !read_only {
            fs.create("/file", 0o644).unwrap();
            fs.write("/file", 0, &vec![1; 100_000]).unwrap();
            volume.sync().unwrap();
            fs.unlink("/file").unwrap();
            volume.sync().unwrap();
        }
        close(&volume);
        let events = device.recording();
        let some = events.events().iter().any(|event| matches!(event, Event::Discard { .. }));
        assert_eq!(some, discard && !read_only);
    }
}

/// Steps of files that are changed in every way.
const STEPS: usize = 25;

fn check(image: &MemoryDevice, info: &CutInfo) -> Result<(), String> {
    common::check_cut(image, info, STEPS)
}

/// Power cuts while freed blocks are spoiled: all that a crash can bring back is whole.
fn explore(args: &[&str], seed: u64) {
    let image = need!(Image::make(24 << 20, args));
    let (device, volume) = spoiled(&image, &OpenOptions::new().discard(true));
    let fs = VolumeFs(&volume);
    thread::scope(|scope| {
        for file in 0..2 {
            let (fs, device) = (&fs, &device);
            scope.spawn(move || append_with_promises(fs, device, file, 12, 3000).unwrap());
        }
        if volume.geometry().features.has(Incompat::EXTENTS) {
            let (fs, device) = (&fs, &device);
            let file = seed as u32;
            scope.spawn(move || change_with_promises(fs, device, file, STEPS).unwrap());
        }
        run_together(&fs, 2, 60, seed).unwrap();
    });
    close(&volume);
    let explorer = Explorer { seed, most: 100, ..Explorer::default() };
    let report = explorer.explore(&device.recording(), |image, info| check(&image, info));
    report.assert_none_failed();
}

#[test]
fn power_cuts_with_discards() {
    explore(KINDS[0].1, 11);
}

#[test]
fn power_cuts_with_discards_on_ext3() {
    explore(KINDS[10].1, 12);
}

/// Both ways to discard, beside threads that allocate and free.
#[test]
fn trim_spoils_nothing_that_is_allocated_meanwhile() {
    let image = need!(Image::make(24 << 20, &["-t", "ext4", "-b", "1024"]));
    let options = OpenOptions::new().discard(true).commit_interval(Duration::from_millis(20));
    let (device, volume) = spoiled(&image, &options);
    let fs = VolumeFs(&volume);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut least = 0;
            while !done.load(Ordering::Relaxed) {
                volume.trim(0..u64::MAX, least).unwrap();
                least = (least + 4096) % 65536;
            }
        });
        let result = run_together(&fs, 4, 200, 21);
        done.store(true, Ordering::Relaxed);
        result.unwrap();
    });
    assert!(volume.trim(0..u64::MAX, 0).unwrap() > 10 << 20);
    close(&volume);
    drop(volume);
    device.inner().save(&image.path()).unwrap();
    e2fs::assert_clean(&image.path());
}
