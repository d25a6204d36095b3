//! A fault in each phase of a commit and of a checkpoint.
//!
//! A run without faults is recorded, and each write and flush of it is told to a phase by where it
//! goes and what it holds. Then the first, the middle and the last of each phase fails, in each
//! way that it can. Wherever metadata or a flush is hit, the journal stops: every later change gets
//! the first cause, and the volume says that it is read-only. What is left is recovered by us, by
//! e2fsck and by Linux, with all that was promised.

mod common;

use common::{Image, Promises, VolumeFs, check_aborted, check_left, errors_noted};
use nextent::inodes::{Inodes, ROOT_INO};
use nextent::{Cred, Error, OpenOptions};
use nextent_device::{Event, Fault, FaultDevice, MemoryDevice, OpKind, RecordingDevice, Rule};
use nextent_ondisk::DiskTime;
use nextent_sync::{Arc, Duration};
use nextent_testkit::{Access, KernelMount, PosixFs, Skip, e2fs, need};
use std::collections::{BTreeMap, BTreeSet};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const BLOCK: u64 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Data,
    DataFlush,
    Revoke,
    Descriptor,
    LogImage,
    LogFlush,
    Commit,
    CommitFlush,
    Home,
    /// The superblock's place, among the others.
    HomeSuper,
    HomeFlush,
    JournalSuper,
    JournalSuperFlush,
}

use Phase::*;

const WRITES: [Phase; 7] = [Data, Revoke, Descriptor, LogImage, Commit, Home, JournalSuper];
const FLUSHES: [Phase; 5] = [DataFlush, LogFlush, CommitFlush, HomeFlush, JournalSuperFlush];

type Device = FaultDevice<RecordingDevice<MemoryDevice>>;

/// Data with a byte that tells it from metadata.
fn data(round: u8, again: bool) -> Vec<u8> {
    vec![0xd0 + 2 * round + u8::from(again); 5 * BLOCK as usize]
}

/// Every phase, twice. Goes on after failures, as a program might; returns what was promised.
fn work(volume: &Inodes) -> Promises {
    let fs = VolumeFs(volume);
    let mut promises = Promises::new();
    for round in 0..2u8 {
        let kept = format!("/kept{round}");
        let written =
            fs.create(&kept, 0o644).and_then(|()| fs.write(&kept, 0, &data(round, false)));
        if written.is_ok() && fs.fsync(&kept).is_ok() {
            promises.push((kept.clone(), data(round, false)));
        }
        // A directory of several blocks, so that there is something to revoke.
        let dir = format!("/dir{round}");
        let _ = fs.mkdir(&dir, 0o755);
        let names: Vec<_> = (0..12).map(|n| format!("{dir}/{n}{}", "x".repeat(200))).collect();
        for name in &names {
            let _ = fs.create(name, 0o600);
        }
        let _ = volume.sync();
        for name in &names {
            let _ = fs.unlink(name);
        }
        let _ = fs.rmdir(&dir);
        let _ = volume.sync();
        // Until the sync returns, either is there, or a part of both.
        let before = promises.len();
        promises.retain(|(name, _)| *name != kept);
        let was_promised = promises.len() < before;
        let again = fs.write(&kept, 0, &data(round, true));
        let synced = volume
            .lookup(&Cred::root(), ROOT_INO, &kept.as_bytes()[1..])
            .and_then(|attr| volume.fdatasync(attr.ino));
        if again.is_ok() && synced.is_ok() && was_promised {
            promises.push((kept, data(round, true)));
        }
        if volume.freeze().is_ok() {
            volume.thaw().unwrap();
        }
    }
    promises
}

fn open(base: &MemoryDevice) -> (Arc<Device>, Inodes) {
    let device = Arc::new(FaultDevice::new(RecordingDevice::new(base.snapshot()), 1));
    // What is written must not depend on whether a tick passed.
    let now = DiskTime { seconds: 1_700_000_000, nanos: 0 };
    let options = OpenOptions::new().commit_interval(Duration::ZERO).now(now);
    let volume = Inodes::open(device.clone(), &options).unwrap();
    (device, volume)
}

/// The journal's blocks, the one with its superblock first.
fn journal_blocks(image: &Image) -> Result<Vec<u64>, Skip> {
    let text = e2fs::debugfs(&image.path(), false, &["blocks <8>"])?;
    Ok(text.split_whitespace().filter_map(|word| word.parse().ok()).collect())
}

fn phase_of_write(journal: &[u64], inside: &BTreeSet<u64>, offset: u64, bytes: &[u8]) -> Phase {
    let block = offset / BLOCK;
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    if !inside.contains(&block) {
        let first = bytes[0];
        let is_data = (0xd0..0xe0).contains(&first) && bytes.iter().all(|byte| *byte == first);
        return match (is_data, block) {
            (true, _) => Data,
            (_, 1) => HomeSuper,
            _ => Home,
        };
    }
    match (block == journal[0], word(0) == 0xc03b_3998, word(4)) {
        (true, ..) => JournalSuper,
        (_, true, 1) => Descriptor,
        (_, true, 2) => Commit,
        (_, true, 5) => Revoke,
        _ => LogImage,
    }
}

fn phase_of_flush(after: Phase) -> Phase {
    match after {
        Data => DataFlush,
        Commit => CommitFlush,
        Home | HomeSuper => HomeFlush,
        JournalSuper => JournalSuperFlush,
        _ => LogFlush,
    }
}

/// For each phase the writes or the flushes of it, counted from the workload's start.
fn phases(base: &MemoryDevice, journal: &[u64]) -> BTreeMap<Phase, Vec<u64>> {
    let (device, volume) = open(base);
    let begin = device.inner().events();
    let promises = work(&volume);
    assert_eq!(promises.len(), 2);
    let end = device.inner().events();
    volume.close().unwrap();
    let inside: BTreeSet<u64> = journal.iter().copied().collect();
    let (mut found, mut writes, mut flushes) = (BTreeMap::<Phase, Vec<u64>>::new(), 0, 0);
    let mut last = Data;
    for event in &device.inner().recording().events()[begin..end] {
        match event {
            Event::Write { offset, data } => {
                last = phase_of_write(journal, &inside, *offset, data);
                found.entry(last).or_default().push(writes);
                writes += 1;
            }
            Event::Flush { .. } => {
                found.entry(phase_of_flush(last)).or_default().push(flushes);
                flushes += 1;
            }
            Event::Zero { .. } | Event::Discard { .. } => writes += 1,
            Event::Mark(_) => {}
        }
    }
    found
}

/// Recovers what is left by a mount of the kernel.
fn check_by_kernel(left: &MemoryDevice, promises: &Promises, what: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    left.save(&path).unwrap();
    let Ok(mount) = KernelMount::new(&path, Access::ReadWrite) else { return };
    for (name, data) in promises {
        let held = std::fs::read(mount.path().join(&name[1..]));
        assert!(held.is_ok_and(|held| held == *data), "{what}: {name} was promised");
    }
    mount.unmount();
    e2fs::assert_clean(&path);
}

fn strike(base: &MemoryDevice, phase: Phase, kind: OpKind, fault: &Fault, n: u64) {
    let what = format!("{phase:?}, {fault:?}, at {n}");
    let (device, volume) = open(base);
    device.add(Rule::on(kind, fault.clone()).after(n).times(1));
    let promises = work(&volume);
    assert_eq!(device.struck(), 1, "{what}");
    let synced = volume.sync();
    if phase == Data {
        // Who wrote was told; the file system is none the worse.
        assert!(synced.is_ok() && promises.len() < 2, "{what}: {synced:?}");
        volume.close().unwrap();
    } else {
        let Err(Error::Aborted(cause)) = synced else { panic!("{what}: {synced:?}") };
        let code = if *fault == Fault::Error(ENOSPC) { ENOSPC } else { EIO };
        assert!(cause.to_string().contains(&format!("os error {code}")), "{what}: {cause}");
        check_aborted(&volume, &what);
        assert!(errors_noted(device.inner().inner()) > 0, "{what}: not noted");
        assert!(matches!(volume.close(), Err(Error::Aborted(_))), "{what}");
    }
    drop(volume);
    let recorded = device.inner();
    let recording = recorded.recording();
    let stable = recording.image_at(recording.stable_at(recording.events().len()));
    check_by_kernel(&recorded.inner().snapshot(), &promises, &what);
    check_by_kernel(&stable, &promises, &format!("{what}, bare"));
    check_left(recorded.inner().snapshot(), &promises, &what);
    check_left(stable, &promises, &format!("{what}, bare"));
}

fn strike_phases(wanted: &[Phase], kind: OpKind, faults: &[Fault]) {
    let args = ["-t", "ext4", "-b", "1024", "-J", "size=1"];
    let image = need!(Image::make(8 << 20, &args));
    let journal = need!(journal_blocks(&image));
    let base = MemoryDevice::load(&image.path()).unwrap();
    let found = phases(&base, &journal);
    for phase in wanted {
        let places = found.get(phase).unwrap_or_else(|| panic!("no {phase:?} in {found:?}"));
        let chosen = BTreeSet::from([0, places.len() / 2, places.len() - 1]);
        for fault in faults {
            chosen.iter().for_each(|at| strike(&base, *phase, kind, fault, places[*at]));
        }
    }
}

#[test]
fn a_failed_write_in_each_phase() {
    let faults = [Fault::Error(EIO), Fault::Error(ENOSPC)];
    strike_phases(&WRITES, OpKind::Write, &faults);
    strike_phases(&[HomeSuper], OpKind::Write, &faults);
}

/// Half of a block arrives. Half of the journal's superblock is one with its sum, since the other
/// half never changes; half of the file system's superblock is none, here as with Linux.
#[test]
fn a_torn_write_in_each_phase() {
    strike_phases(&WRITES, OpKind::Write, &[Fault::Torn { sectors: 1 }]);
}

#[test]
fn a_failed_flush_in_each_phase() {
    strike_phases(&FLUSHES, OpKind::Flush, &[Fault::Error(EIO)]);
}
