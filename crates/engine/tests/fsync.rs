//! Cost and guarantees of fsync. A recording device counts writes and flushes.

mod common;

use common::{Image, VolumeFs};
use nextent::inodes::{Access, Inodes, NewNode, OpenFile, ROOT_INO};
use nextent::{Cred, Error, OpenOptions};
use nextent_device::{Event, Fault, FaultDevice, MemoryDevice, OpKind, RecordingDevice, Rule};
use nextent_sync::{Arc, Duration, Instant, thread};
use nextent_testkit::{PosixFs, e2fs, need};

type Recorded = FaultDevice<RecordingDevice<MemoryDevice>>;

const EIO: i32 = 5;

fn device(image: &Image) -> Arc<Recorded> {
    let base = MemoryDevice::load(&image.path()).unwrap();
    Arc::new(FaultDevice::new(RecordingDevice::new(base), 1))
}

/// Opens without commits by time.
fn open(device: &Arc<Recorded>) -> Inodes {
    let options = OpenOptions::new().commit_interval(Duration::ZERO);
    Inodes::open(device.clone(), &options).unwrap()
}

fn create<'v>(volume: &'v Inodes, name: &str) -> OpenFile<'v> {
    let root = Cred::root();
    let attr = volume.mknod(&root, ROOT_INO, name.as_bytes(), NewNode::Regular, 0o644).unwrap();
    volume.file(&root, attr.ino, Access::READ_WRITE).unwrap()
}

/// Flushes and runs of consecutive writes since event `from`.
fn cost(device: &Recorded, from: usize) -> (usize, usize) {
    let recording = device.inner().recording();
    let (mut flushes, mut runs, mut next) = (0, 0, u64::MAX);
    for event in &recording.events()[from..] {
        match event {
            Event::Write { offset, data } => {
                runs += usize::from(*offset != next);
                next = offset + data.len() as u64;
            }
            Event::Flush { .. } => {
                flushes += 1;
                next = u64::MAX;
            }
            _ => {}
        }
    }
    (flushes, runs)
}

fn events(device: &Recorded) -> usize {
    device.inner().events()
}

fn assert_clean(device: &Recorded) {
    assert_clean_in_memory(device.inner().inner());
}

fn assert_clean_in_memory(device: &MemoryDevice) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    device.save(&path).unwrap();
    e2fs::assert_clean(&path);
}

const EXT4: &[&str] = &["-t", "ext4"];

/// An append needs data, log, flush, commit block and flush. A sync of durable data costs nothing,
/// and an overwrite needs one flush.
#[test]
fn a_sync_has_the_least_cost() {
    let image = need!(Image::make(64 << 20, EXT4));
    let device = device(&image);
    let volume = open(&device);
    let file = create(&volume, "file");
    file.sync().unwrap();
    for _ in 0..3 {
        let from = events(&device);
        file.append(&[7; 4096]).unwrap();
        file.sync().unwrap();
        assert_eq!(cost(&device, from), (2, 3), "an append");
        let from = events(&device);
        file.sync().unwrap();
        file.sync_data().unwrap();
        assert_eq!(events(&device), from, "all is durable");
        file.write(0, &[8; 4096]).unwrap();
        file.sync_data().unwrap();
        assert_eq!(cost(&device, from), (1, 1), "an overwrite");
        file.sync_data().unwrap();
        assert_eq!(cost(&device, from), (1, 1), "flushed already");
        file.sync().unwrap();
    }
    // A sync of this file does not commit another file's changes.
    let _other = create(&volume, "other");
    let from = events(&device);
    file.sync().unwrap();
    assert_eq!(events(&device), from);
    volume.sync().unwrap();
    let from = events(&device);
    volume.sync().unwrap();
    assert_eq!(cost(&device, from), (1, 0), "a sync with nothing to do");
    drop(file);
    drop(_other);
    common::close(&volume);
    assert_clean(&device);
}

/// Threads that sync at the same time share commits.
#[test]
fn many_syncs_share_a_commit() {
    const THREADS: usize = 16;
    const ROUNDS: usize = 12;
    let image = need!(Image::make(64 << 20, EXT4));
    let device = device(&image);
    let volume = open(&device);
    device.add(Rule::on(OpKind::Flush, Fault::Delay(Duration::from_millis(3))));
    let from = events(&device);
    thread::scope(|scope| {
        for n in 0..THREADS {
            let volume = &volume;
            scope.spawn(move || {
                let file = create(volume, &format!("file{n}"));
                for _ in 0..ROUNDS {
                    file.append(&[n as u8; 4096]).unwrap();
                    file.sync().unwrap();
                }
            });
        }
    });
    let (flushes, _) = cost(&device, from);
    assert!(flushes >= 2 * ROUNDS, "{flushes}");
    assert!(flushes < THREADS * ROUNDS / 2, "{flushes} flushes for {} syncs", THREADS * ROUNDS);
    common::close(&volume);
    assert_clean(&device);
}

/// A sync that begins while another sync's flush of the same file runs waits for a flush that
/// covers its data.
#[test]
fn a_sync_waits_for_a_flush_that_covers_it() {
    let image = need!(Image::make(64 << 20, EXT4));
    let device = device(&image);
    let volume = open(&device);
    let file = create(&volume, "file");
    file.append(&[1; 8192]).unwrap();
    file.sync().unwrap();
    for round in 0..5 {
        let struck = device.struck();
        file.write(0, &[round; 4096]).unwrap();
        device.add(Rule::on(OpKind::Flush, Fault::Delay(Duration::from_millis(60))).times(1));
        thread::scope(|scope| {
            scope.spawn(|| file.sync_data().unwrap());
            while device.struck() == struck {
                thread::yield_now();
            }
            // That flush is still running and need not cover this write.
            file.write(4096, &[round; 4096]).unwrap();
            let written = events(&device);
            file.sync_data().unwrap();
            let recording = device.inner().recording();
            let stable = recording.stable_at(recording.events().len());
            assert!(stable >= written, "{stable} of {written} events are stable");
        });
    }
    drop(file);
    common::close(&volume);
    assert_clean(&device);
}

/// A failed flush may have lost any data, so every later sync fails.
#[test]
fn a_failed_flush_is_not_forgotten() {
    let image = need!(Image::make(64 << 20, EXT4));
    let device = device(&image);
    let volume = open(&device);
    let files = [create(&volume, "one"), create(&volume, "two")];
    for file in &files {
        file.append(&[1; 4096]).unwrap();
    }
    volume.sync().unwrap();
    for file in &files {
        file.write(0, &[2; 4096]).unwrap();
    }
    device.add(Rule::on(OpKind::Flush, Fault::Error(EIO)).times(1));
    for file in files.iter().chain(&files) {
        assert!(matches!(file.sync_data(), Err(Error::Io(_))));
    }
    // A commit fails, too.
    files[0].append(&[3; 4096]).unwrap();
    assert!(matches!(files[0].sync(), Err(Error::Aborted(_))));
    assert!(matches!(files[1].append(&[3; 4096]), Err(Error::Aborted(_))));
    assert!(volume.is_read_only());
    drop(files);
    assert!(volume.close().is_err());
    drop(volume);
    let left = Arc::new(device.inner().inner().snapshot());
    Inodes::open(left.clone(), &OpenOptions::default()).unwrap().close().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    left.save(&path).unwrap();
    e2fs::assert_clean(&path);
}

/// A change is durable soon after the commit interval without a sync. An idle volume does no I/O.
#[test]
fn the_commit_interval_is_kept() {
    let image = need!(Image::make(64 << 20, EXT4));
    let device = device(&image);
    let interval = Duration::from_millis(150);
    let options = OpenOptions::new().commit_interval(interval);
    let volume = Inodes::open(device.clone(), &options).unwrap();
    for round in 0..3 {
        let name = format!("/file{round}");
        VolumeFs(&volume).create(&name, 0o644).unwrap();
        let begin = Instant::now();
        loop {
            let bare = {
                let recording = device.inner().recording();
                recording.image_at(recording.stable_at(recording.events().len()))
            };
            let read_only = OpenOptions::new().read_only(true);
            let seen = Inodes::open(Arc::new(bare), &read_only).unwrap();
            if VolumeFs(&seen).read(&name, 0, 1).is_ok() {
                break;
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "{name} is not committed");
            thread::sleep(Duration::from_millis(10));
        }
    }
    let from = events(&device);
    thread::sleep(interval * 3);
    assert_eq!(events(&device), from, "an idle volume");
    common::close(&volume);
    assert_clean(&device);
}
