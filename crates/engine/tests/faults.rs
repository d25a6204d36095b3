//! A device that fails once, at every write and flush of a mixed workload in turn.
//!
//! Whatever fails: nothing panics or hangs; once the journal has stopped, every call that would
//! change something gets its first cause and the volume says that it is read-only; what is left
//! on the device is recovered by us and by e2fsck, clean and with all that was promised.

mod common;

use common::{Image, Promises, VolumeFs, check_aborted, check_left, errors_noted};
use nextent::inodes::Inodes;
use nextent::{Error, OpenOptions};
use nextent_device::{Fault, FaultDevice, MemoryDevice, OpKind, RecordingDevice, Rule};
use nextent_sync::{Arc, Duration, thread};
use nextent_testkit::{PosixFs, RenameFlags, need};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

fn bytes(round: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ round).collect()
}

/// Goes on after failures, as a program might; returns what was promised.
fn work(volume: &Inodes) -> Promises {
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

/// Runs the workload with one fault at the `n`th operation; false once it has fewer.
fn strike(base: &MemoryDevice, rule: &Rule, n: u64) -> bool {
    let device = Arc::new(FaultDevice::new(RecordingDevice::new(base.snapshot()), 1));
    device.add(rule.clone().after(n).times(1));
    let what = format!("{rule:?}, at {n}");
    let options = OpenOptions::new().commit_interval(Duration::ZERO);
    let mut promises = Promises::new();
    if let Ok(volume) = Inodes::open(device.clone(), &options) {
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
            let Ok(volume) = Inodes::open(device.clone(), &OpenOptions::default()) else {
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
