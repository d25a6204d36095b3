//! A device that fails once, at every write and flush of a mixed workload in turn.
//!
//! Whatever fails: nothing panics or hangs; once the journal has stopped, every call that would
//! change something gets its first cause and the volume says that it is read-only; what is left
//! on the device is recovered by us and by e2fsck, clean and with all that was promised.

mod common;

use common::{Image, VolumeFs};
use nextent::{Cred, Error, OpenOptions, ROOT_INO, Volume};
use nextent_device::{
    BlockDevice, Fault, FaultDevice, MemoryDevice, OpKind, RecordingDevice, Rule,
};
use nextent_ondisk::Superblock;
use nextent_sync::{Arc, Duration, thread};
use std::path::Path;

use nextent_testkit::{PosixFs, RenameFlags, e2fs, need};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// What fsync and sync reported as done: a file and its bytes.
type Promises = Vec<(String, Vec<u8>)>;

fn bytes(round: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ round).collect()
}

/// Goes on after failures, as a program might; returns what was promised.
fn work(volume: &Volume) -> Promises {
    let fs = VolumeFs(volume);
    let mut promises = Promises::new();
    for round in 0..4u8 {
        let kept = format!("/kept{round}");
        let (from, to) = (format!("/from{round}"), format!("/to{round}"));
        let data = bytes(round, 3000 + 2500 * usize::from(round));
        let written = fs.create(&kept, 0o644).and_then(|()| fs.write(&kept, 0, &data));
        if written.is_ok() && fs.fsync(&kept).is_ok() {
            promises.push((kept, data));
        }
        let written = fs
            .create(&from, 0o644)
            .and_then(|()| fs.write(&from, 0, &bytes(round, 9000)))
            .and_then(|()| fs.allocate(&from, 4096, 40_000, false));
        let cut = fs.rename(&from, &to, RenameFlags::Replace).and_then(|()| fs.truncate(&to, 5000));
        if written.is_ok() && cut.is_ok() && volume.sync().is_ok() {
            promises.push((to, bytes(round, 9000)[..5000].to_vec()));
        }
        if round > 0 {
            let old = format!("/to{}", round - 1);
            promises.retain(|(name, _)| *name != old);
            let _ = fs.unlink(&old);
        }
        let _ = fs.mkdir(&format!("/dir{round}"), 0o755);
        let _ = fs.symlink(&"x".repeat(90), &format!("/dir{round}/link"));
    }
    promises
}

/// What a volume whose journal stopped says to everyone.
fn check_aborted(volume: &Volume, what: &str) {
    let root = Cred::root();
    let changes = [
        volume.mkdir(&root, ROOT_INO, b"more", 0o755).map(drop),
        volume.unlink(&root, ROOT_INO, b"kept0"),
        volume.sync(),
    ];
    let texts: Vec<String> = changes
        .into_iter()
        .map(|change| match change {
            Err(error @ Error::Aborted(_)) => error.to_string(),
            other => panic!("{what}: after the journal stopped: {other:?}"),
        })
        .collect();
    assert!(texts.iter().all(|text| *text == texts[0]), "{what}: {texts:?}");
    assert!(texts[0].contains("failed"), "{what}: {texts:?}");
    assert!(volume.is_read_only(), "{what}");
    assert!(volume.lookup(&root, ROOT_INO, b"lost+found").is_ok(), "{what}: reading goes on");
}

fn errors_noted(device: &MemoryDevice) -> u32 {
    let mut sb = [0; 1024];
    device.read_at(1024, &mut sb).unwrap();
    Superblock::read(&sb).unwrap().error_count.get()
}

fn check_promises(volume: &Volume, promises: &Promises, what: &str) {
    for (name, data) in promises {
        let held = VolumeFs(volume).read(name, 0, data.len() + 1);
        assert!(held.as_ref() == Ok(data), "{what}: {name} was promised");
    }
}

fn recover_by_e2fsck(path: &Path, what: &str) {
    let Ok(mut report) = e2fs::e2fsck_recover(path) else { return };
    if report.text.contains("orphan_present is set but orphan file is clean") {
        // e2fsck leaves that bit behind when it finds nothing but an empty log to recover.
        e2fs::debugfs(path, true, &["feature -orphan_present"]).unwrap();
        report = e2fs::e2fsck(path).unwrap();
    }
    assert!(report.is_clean(), "{what}: recovered by e2fsck: {report:?}");
}

/// Runs the workload with one fault at the `n`th operation; false once it has fewer.
fn strike(base: &MemoryDevice, rule: &Rule, n: u64) -> bool {
    let device = Arc::new(FaultDevice::new(RecordingDevice::new(base.snapshot()), 1));
    device.add(rule.clone().after(n).times(1));
    let what = format!("{rule:?}, at {n}");
    let options = OpenOptions { commit_interval: Duration::ZERO, ..OpenOptions::default() };
    let mut promises = Promises::new();
    if let Ok(volume) = Volume::open(device.clone(), &options) {
        promises = work(&volume);
        let aborted = matches!(volume.sync(), Err(Error::Aborted(_)));
        if aborted {
            check_aborted(&volume, &what);
            assert!(errors_noted(device.inner().inner()) > 0, "{what}: not noted");
        }
        let closed = volume.close();
        assert!(!aborted || matches!(closed, Err(Error::Aborted(_))), "{what}: {closed:?}");
    }
    let recorded = device.inner();
    check_left(recorded.inner().snapshot(), &promises, &what);
    // The power goes too, and with it all that no flush made stable.
    let recording = recorded.recording();
    let stable = recording.image_at(recording.stable_at(recording.events().len()));
    check_left(stable, &promises, &format!("{what}, bare"));
    device.struck() > 0
}

/// Recovers what is left on the device, by us and by e2fsck.
fn check_left(left: MemoryDevice, promises: &Promises, what: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let left = Arc::new(left);
    left.save(&path).unwrap();
    recover_by_e2fsck(&path, what);
    let volume = Volume::open(left.clone(), &OpenOptions::default())
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    check_promises(&volume, promises, what);
    volume.close().unwrap();
    left.save(&path).unwrap();
    if let Ok(report) = e2fs::e2fsck(&path) {
        assert!(report.is_clean(), "{what}: recovered by us: {report:?}");
    }
}

fn strike_everywhere(args: &[&str], rule: &Rule, step: usize) {
    let image = need!(Image::make(8 << 20, args));
    let base = MemoryDevice::load(&image.path()).unwrap();
    let struck = (0..2000).step_by(step).take_while(|&n| strike(&base, rule, n)).count();
    assert!(struck > 6, "only {struck} places to fail");
}

const ORPHANS: &[&str] = &["-t", "ext4", "-b", "1024", "-O", "orphan_file", "-J", "size=1"];
const EXT3: &[&str] = &["-t", "ext3", "-b", "1024", "-J", "size=1"];

#[test]
fn every_write_fails_once() {
    strike_everywhere(ORPHANS, &Rule::on(OpKind::Write, Fault::Error(EIO)), 1);
}

#[test]
fn every_write_of_ext3_fails_once() {
    strike_everywhere(EXT3, &Rule::on(OpKind::Write, Fault::Error(EIO)), 2);
}

#[test]
fn every_flush_fails_once() {
    strike_everywhere(ORPHANS, &Rule::on(OpKind::Flush, Fault::Error(EIO)), 1);
}

#[test]
fn a_full_device_is_an_error_like_any() {
    strike_everywhere(ORPHANS, &Rule::on(OpKind::Write, Fault::Error(ENOSPC)), 3);
}

/// The superblock's two sectors are taken for one: half of one has a wrong checksum, here as with
/// Linux.
#[test]
fn every_write_is_torn_once() {
    let torn = Rule::on(OpKind::Write, Fault::Torn { sectors: 1 }).within(2048..u64::MAX);
    strike_everywhere(ORPHANS, &torn, 1);
}

#[test]
fn every_read_fails_once() {
    strike_everywhere(ORPHANS, &Rule::on(OpKind::Read, Fault::Error(EIO)), 1);
}

/// Many threads meet the fault at once: each of them returns, and so does whoever comes after.
#[test]
fn no_thread_waits_for_a_journal_that_stopped() {
    let image = need!(Image::make(16 << 20, ORPHANS));
    let base = MemoryDevice::load(&image.path()).unwrap();
    for kind in [OpKind::Write, OpKind::Flush] {
        for n in (0..60).step_by(4) {
            let device = Arc::new(FaultDevice::new(RecordingDevice::new(base.snapshot()), 1));
            // From then on nothing works, as with a disk that is gone.
            device.add(Rule::on(kind, Fault::Error(EIO)).after(n));
            let Ok(volume) = Volume::open(device.clone(), &OpenOptions::default()) else {
                continue;
            };
            thread::scope(|scope| {
                for t in 0..6 {
                    let fs = VolumeFs(&volume);
                    scope.spawn(move || {
                        for round in 0..8 {
                            let name = format!("/f{t}-{round}");
                            let _ = fs.create(&name, 0o600);
                            let _ = fs.write(&name, 0, &[1; 9000]);
                            let _ = fs.fsync(&name);
                            let _ = fs.truncate(&name, 100);
                            let _ = fs.unlink(&name);
                        }
                    });
                }
            });
            let _ = volume.sync();
            let _ = volume.freeze();
            let _ = volume.close();
            drop(volume);
            device.clear();
            check_left(
                device.inner().inner().snapshot(),
                &Promises::new(),
                &format!("{kind:?} {n}"),
            );
        }
    }
}
