//! Power cuts at every point of a mixed workload. The engine and e2fsck each recover a copy of the
//! image. Both copies must be clean and have everything that an fsync made durable.

mod common;

use common::{Image, KINDS, VolumeFs, close};
use nextent::inodes::Inodes;
use nextent::{Cred, OpenOptions};
use nextent_device::{BlockDevice, MemoryDevice, RecordingDevice};
use nextent_ondisk::Incompat;
use nextent_sync::{Arc, thread};
use nextent_testkit::{
    CutInfo, Explorer, PosixFs, append_with_promises, change_with_promises, check_changes,
    check_promises, e2fs, need, run_together,
};

/// Recovers one copy of `image` by an open and another by e2fsck. An error describes what is wrong.
fn check(image: &MemoryDevice, info: &CutInfo) -> Result<(), String> {
    common::check_cut(image, info, STEPS)?;
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let theirs = dir.path().join("theirs");
    image.save(&theirs).map_err(|error| error.to_string())?;
    let report = e2fs::e2fsck_recover(&theirs).map_err(|skip| skip.to_string())?;
    if !report.is_clean() {
        return Err(format!("recovered by e2fsck: {report:?}"));
    }
    let device = MemoryDevice::load(&theirs).map_err(|error| error.to_string())?;
    let options = OpenOptions::new().read_only(true);
    let volume = Inodes::open(Arc::new(device), &options).map_err(|e| format!("open: {e}"))?;
    check_promises(&VolumeFs(&volume), info)?;
    check_changes(&VolumeFs(&volume), info, STEPS)
}

/// Number of changes of every kind per file.
const STEPS: usize = 25;

fn explore(args: &[&str], seed: u64, calls: usize, most: usize) {
    let image = need!(Image::make(24 << 20, args));
    let base = MemoryDevice::load(&image.path()).unwrap();
    let device = Arc::new(RecordingDevice::new(base));
    let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
    let fs = VolumeFs(&volume);
    thread::scope(|scope| {
        for file in 0..2 {
            let (fs, device) = (&fs, &device);
            scope.spawn(move || append_with_promises(fs, device, file, 12, 3000).unwrap());
        }
        // Some kinds of changes need extents.
        if volume.geometry().features.has(Incompat::EXTENTS) {
            let file = seed as u32;
            let (fs, device) = (&fs, &device);
            scope.spawn(move || change_with_promises(fs, device, file, STEPS).unwrap());
        }
        run_together(&fs, 2, calls, seed).unwrap();
    });
    close(&volume);
    let explorer = Explorer { seed, most, ..Explorer::default() };
    let report = explorer.explore(&device.recording(), |image, info| check(&image, info));
    eprintln!("{} of {} images checked", report.checked, report.possible);
    report.assert_none_failed();
}

#[test]
fn power_cuts_with_the_orphan_file() {
    explore(KINDS[1].1, 7, 60, 120);
}

#[test]
fn power_cuts_on_small_blocks() {
    explore(KINDS[2].1, 8, 60, 80);
}

#[test]
fn power_cuts_on_ext3() {
    explore(KINDS[9].1, 9, 60, 80);
}

/// Open and close write the superblock while the log is empty. No power cut may leave it torn, also
/// at the end of a recovery.
#[test]
fn power_cuts_while_opening_and_closing() {
    let image = need!(Image::make(24 << 20, KINDS[1].1));
    let clean = MemoryDevice::load(&image.path()).unwrap();
    let device = Arc::new(clean.snapshot());
    let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
    VolumeFs(&volume).create("/file", 0o644).unwrap();
    volume.sync().unwrap();
    let unclean = device.snapshot();
    close(&volume);
    let explorer = Explorer { seed: 5, subsets: 24, most: 250, ..Explorer::default() };
    for base in [clean, unclean] {
        let device = Arc::new(RecordingDevice::new(base));
        close(&Inodes::open(device.clone(), &OpenOptions::default()).unwrap());
        let report = explorer.explore(&device.recording(), |image, info| check(&image, info));
        eprintln!("{} of {} images checked", report.checked, report.possible);
        report.assert_none_failed();
    }
}

/// After half of a write the superblock has a wrong checksum; the log has a whole copy.
#[test]
fn the_log_repairs_a_torn_superblock() {
    let image = need!(Image::make(24 << 20, KINDS[0].1));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let tear = |device: &MemoryDevice| {
        let torn = Arc::new(device.snapshot());
        torn.write_at(1024 + 1020, &[1, 2, 3, 4]).unwrap();
        torn
    };
    let open = |device: &Arc<MemoryDevice>| Inodes::open(device.clone(), &OpenOptions::default());
    let volume = open(&device).unwrap();
    VolumeFs(&volume).create("/file", 0o644).unwrap();
    volume.sync().unwrap();
    let torn = tear(&device);
    let theirs = need!(Image::make(24 << 20, KINDS[0].1));
    torn.save(&theirs.path()).unwrap();
    need!(e2fs::e2fsck_recover(&theirs.path())).assert_clean();
    let by_e2fsck = open(&Arc::new(MemoryDevice::load(&theirs.path()).unwrap())).unwrap();
    assert!(by_e2fsck.resolve(&Cred::root(), b"/file", false).is_ok());
    close(&by_e2fsck);
    let repaired = open(&torn).unwrap();
    assert!(repaired.resolve(&Cred::root(), b"/file", false).is_ok());
    close(&repaired);
    drop(repaired);
    torn.save(&image.path()).unwrap();
    e2fs::assert_clean(&image.path());
    // An empty log has no copy.
    close(&volume);
    assert!(open(&tear(&device)).is_err());
}
