//! A device that fails once, at each write and flush of a mixed workload in turn.
//!
//! No failure may cause a panic or a hang. After the journal has stopped, every change fails with
//! the first cause, and the volume is read-only. The engine and e2fsck recover the image: clean and
//! with every durable file.

mod common;

use common::{DurableFiles, Image, VolumeFs, check_aborted, check_recovery, error_count};
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

/// A workload that continues after failures. Returns the durable files.
fn work(volume: &Inodes) -> DurableFiles {
    let fs = VolumeFs(volume);
    let mut durable = DurableFiles::new();
    for round in 0..4u8 {
        let kept = format!("/kept{round}");
        let (from, to) = (format!("/from{round}"), format!("/to{round}"));
        let data = bytes(round, 3000 + 2500 * usize::from(round));
        let written = fs.create(&kept, 0o644).and_then(|()| fs.write(&kept, 0, &data));
        if written.is_ok() && fs.fsync(&kept).is_ok() {
            durable.push((kept, data));
        }
        let written = fs
            .create(&from, 0o644)
            .and_then(|()| fs.write(&from, 0, &bytes(round, 9000)))
            .and_then(|()| fs.allocate(&from, 4096, 40_000, false));
        let cut = fs.rename(&from, &to, RenameFlags::Replace).and_then(|()| fs.truncate(&to, 5000));
        if written.is_ok() && cut.is_ok() && volume.sync().is_ok() {
            durable.push((to, bytes(round, 9000)[..5000].to_vec()));
        }
        if round > 0 {
            let old = format!("/to{}", round - 1);
            durable.retain(|(name, _)| *name != old);
            let _ = fs.unlink(&old);
        }
        let _ = fs.mkdir(&format!("/dir{round}"), 0o755);
        let _ = fs.symlink(&"x".repeat(90), &format!("/dir{round}/link"));
    }
    durable
}

/// Runs the workload with one fault at the `n`th operation; false once it has fewer.
fn inject(base: &MemoryDevice, rule: &Rule, n: u64) -> bool {
    let device = Arc::new(FaultDevice::new(RecordingDevice::new(base.snapshot()), 1));
    device.add(rule.clone().after(n).times(1));
    let what = format!("{rule:?}, at {n}");
    let options = OpenOptions::new().commit_interval(Duration::ZERO);
    let mut durable = DurableFiles::new();
    if let Ok(volume) = Inodes::open(device.clone(), &options) {
        durable = work(&volume);
        let aborted = matches!(volume.sync(), Err(Error::Aborted(_)));
        if aborted {
            check_aborted(&volume, &what);
            assert!(error_count(device.inner().inner()) > 0, "{what}: not recorded");
        }
        let closed = volume.close();
        assert!(!aborted || matches!(closed, Err(Error::Aborted(_))), "{what}: {closed:?}");
    }
    let recorded = device.inner();
    check_recovery(recorded.inner().snapshot(), &durable, &what);
    // A power cut follows and loses every write that no flush made stable.
    let recording = recorded.recording();
    let stable = recording.image_at(recording.stable_at(recording.events().len()));
    check_recovery(stable, &durable, &format!("{what}, bare"));
    device.struck() > 0
}

fn inject_everywhere(args: &[&str], rule: &Rule, step: usize) {
    let image = need!(Image::make(8 << 20, args));
    let base = MemoryDevice::load(&image.path()).unwrap();
    let faults = (0..2000).step_by(step).take_while(|&n| inject(&base, rule, n)).count();
    assert!(faults > 6, "only {faults} faults");
}

const ORPHANS: &[&str] = &["-t", "ext4", "-b", "1024", "-O", "orphan_file", "-J", "size=1"];
const EXT3: &[&str] = &["-t", "ext3", "-b", "1024", "-J", "size=1"];

#[test]
fn every_write_fails_once() {
    inject_everywhere(ORPHANS, &Rule::on(OpKind::Write, Fault::Error(EIO)), 1);
}

#[test]
fn every_write_of_ext3_fails_once() {
    inject_everywhere(EXT3, &Rule::on(OpKind::Write, Fault::Error(EIO)), 2);
}

#[test]
fn every_flush_fails_once() {
    inject_everywhere(ORPHANS, &Rule::on(OpKind::Flush, Fault::Error(EIO)), 1);
}

#[test]
fn every_write_fails_once_without_space() {
    inject_everywhere(ORPHANS, &Rule::on(OpKind::Write, Fault::Error(ENOSPC)), 3);
}

/// The superblock's two sectors count as one: a torn superblock has a wrong checksum, which Linux
/// refuses, too.
#[test]
fn every_write_is_torn_once() {
    let torn = Rule::on(OpKind::Write, Fault::Torn { sectors: 1 }).within(2048..u64::MAX);
    inject_everywhere(ORPHANS, &torn, 1);
}

#[test]
fn every_read_fails_once() {
    inject_everywhere(ORPHANS, &Rule::on(OpKind::Read, Fault::Error(EIO)), 1);
}

/// Many threads get the error at once. Each of them returns, and so do later calls.
#[test]
fn no_thread_waits_for_a_stopped_journal() {
    let image = need!(Image::make(16 << 20, ORPHANS));
    let base = MemoryDevice::load(&image.path()).unwrap();
    for kind in [OpKind::Write, OpKind::Flush] {
        for n in (0..60).step_by(4) {
            let device = Arc::new(FaultDevice::new(RecordingDevice::new(base.snapshot()), 1));
            // All later operations fail, as on a removed disk.
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
            check_recovery(
                device.inner().inner().snapshot(),
                &DurableFiles::new(),
                &format!("{kind:?} {n}"),
            );
        }
    }
}
