//! Unlinked open files at a power cut, on volumes with the list of orphans and with the orphan
//! file. Many threads make them; the cuts are at flushes. After recovery by the engine and by
//! e2fsck, all of them are freed and nothing else is.

mod common;

use common::{Image, VolumeFs, close};
use nextent::inodes::{Access, InodeNo, Inodes, ROOT_INO};
use nextent::{Cred, OpenOptions};
use nextent_device::{MemoryDevice, RecordingDevice};
use nextent_sync::{Arc, Duration, thread};
use nextent_testkit::{CutInfo, Explorer, PosixFs, e2fs, need};

const THREADS: usize = 6;

fn open(device: Arc<dyn nextent_device::BlockDevice>) -> Result<Inodes, String> {
    let options = OpenOptions::new().commit_interval(Duration::ZERO);
    Inodes::open(device, &options).map_err(|error| error.to_string())
}

fn create(volume: &Inodes, name: &str, len: usize) -> InodeNo {
    let fs = VolumeFs(volume);
    let path = format!("/{name}");
    fs.create(&path, 0o644).unwrap();
    fs.write(&path, 0, &vec![name.len() as u8; len]).unwrap();
    volume.resolve(&Cred::root(), path.as_bytes(), false).unwrap().ino
}

/// Unlinks open files of a thread, closes some and truncates another.
fn work(volume: &Inodes, thread: usize) {
    let root = Cred::root();
    let kept = format!("kept{thread}");
    create(volume, &kept, 9000);
    for round in 0..4 {
        let name = format!("gone{thread}-{round}");
        let ino = create(volume, &name, 5000 + 1000 * round);
        volume.open_file(&root, ino, Access::READ_WRITE).unwrap();
        if round % 2 == 0 {
            volume.sync().unwrap();
        }
        volume.unlink(&root, ROOT_INO, name.as_bytes()).unwrap();
        if round == 1 {
            volume.release(ino).unwrap();
        }
        if round == 2 {
            volume.fsync(ino).unwrap();
        }
    }
    VolumeFs(volume).truncate(&format!("/{kept}"), 3000).unwrap();
}

/// Checks that the free counts match the files with names.
fn check(image: MemoryDevice, _: &CutInfo) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let device = Arc::new(image.snapshot());
    let volume = open(device.clone())?;
    volume.close().map_err(|error| error.to_string())?;
    drop(volume);
    let ours = dir.path().join("ours");
    device.save(&ours).unwrap();
    let report = e2fs::e2fsck(&ours).map_err(|skip| skip.to_string())?;
    if !report.is_clean() {
        return Err(format!("recovered by the engine: {report:?}"));
    }
    let theirs = dir.path().join("theirs");
    image.save(&theirs).unwrap();
    let recovered = e2fs::e2fsck_recover(&theirs).map_err(|skip| skip.to_string())?;
    // e2fsck does not clear that bit if the log is empty.
    if recovered.text.contains("orphan_present is set but orphan file is clean") {
        e2fs::debugfs(&theirs, true, &["feature -orphan_present"]).unwrap();
    }
    if recovered.text.contains("Superblock checksum does not match") {
        // A torn in-place write: the engine repairs it from the log, e2fsck needs a backup.
        return Ok(());
    }
    let report = e2fs::e2fsck(&theirs).map_err(|skip| skip.to_string())?;
    if !report.is_clean() {
        return Err(format!("recovered by e2fsck: {recovered:?} {report:?}"));
    }
    Ok(())
}

fn explore(args: &[&str], most: usize) {
    let image = need!(Image::make(16 << 20, args));
    let base = MemoryDevice::load(&image.path()).unwrap();
    let device = Arc::new(RecordingDevice::new(base));
    let volume = open(device.clone()).unwrap();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let volume = &volume;
            scope.spawn(move || work(volume, thread));
        }
    });
    volume.sync().unwrap();
    // All open files are orphans at the same time.
    let crashed = Arc::new(device.image_at(device.events()));
    assert!(open(crashed).unwrap().recovery().orphans as usize >= 3 * THREADS);
    close(&volume);
    let report = Explorer { most, ..Explorer::default() }.explore(&device.recording(), check);
    eprintln!("{} of {} images checked", report.checked, report.possible);
    report.assert_none_failed();
}

#[test]
fn in_the_list() {
    explore(&["-t", "ext4", "-b", "1024", "-O", "^orphan_file"], 120);
}

#[test]
fn in_the_list_of_ext3() {
    explore(&["-t", "ext3", "-b", "1024"], 60);
}

#[test]
fn in_the_orphan_file() {
    explore(&["-t", "ext4", "-b", "1024", "-O", "orphan_file"], 60);
}
