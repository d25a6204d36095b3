//! A fault in each phase of a commit and of a checkpoint.
//!
//! The test records a run without faults, and assigns each write and flush to a phase by its
//! location and contents. Then the first, the middle and the last operation of each phase fails, in
//! each way that it can. If it writes metadata or is a flush, the journal stops: every later change
//! fails with the first cause, and the volume is read-only. The engine, e2fsck and Linux recover
//! the image with every durable file.

mod common;
#[path = "commit_phase_faults/lost_server.rs"]
mod lost_server;

use common::{DurableFiles, Image, VolumeFs, check_aborted, check_recovery, error_count};
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
    InPlace,
    /// In-place metadata, including the superblock.
    InPlaceSuper,
    InPlaceFlush,
    JournalSuper,
    JournalSuperFlush,
}

use Phase::*;

const WRITES: [Phase; 7] = [Data, Revoke, Descriptor, LogImage, Commit, InPlace, JournalSuper];
const FLUSHES: [Phase; 5] = [DataFlush, LogFlush, CommitFlush, InPlaceFlush, JournalSuperFlush];

type Device = FaultDevice<RecordingDevice<MemoryDevice>>;

/// Data with a byte that distinguishes it from metadata.
fn data(round: u8, again: bool) -> Vec<u8> {
    vec![0xd0 + 2 * round + u8::from(again); 5 * BLOCK as usize]
}

/// A workload with every phase twice, that continues after failures. Returns the durable files.
fn work(volume: &Inodes) -> DurableFiles {
    let fs = VolumeFs(volume);
    let mut durable = DurableFiles::new();
    for round in 0..2u8 {
        let kept = format!("/kept{round}");
        let written =
            fs.create(&kept, 0o644).and_then(|()| fs.write(&kept, 0, &data(round, false)));
        if written.is_ok() && fs.fsync(&kept).is_ok() {
            durable.push((kept.clone(), data(round, false)));
        }
        // A directory of several blocks, whose removal revokes blocks.
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
        // Until the sync returns, the file may have old and new data.
        let before = durable.len();
        durable.retain(|(name, _)| *name != kept);
        let was_promised = durable.len() < before;
        let again = fs.write(&kept, 0, &data(round, true));
        let synced = volume
            .lookup(&Cred::root(), ROOT_INO, &kept.as_bytes()[1..])
            .and_then(|attr| volume.fdatasync(attr.ino));
        if again.is_ok() && synced.is_ok() && was_promised {
            durable.push((kept, data(round, true)));
        }
        if volume.freeze().is_ok() {
            volume.thaw().unwrap();
        }
    }
    durable
}

fn open(base: &MemoryDevice) -> (Arc<Device>, Inodes) {
    let device = Arc::new(FaultDevice::new(RecordingDevice::new(base.snapshot()), 1));
    // The writes must not depend on the clock.
    let now = DiskTime { seconds: 1_700_000_000, nanos: 0 };
    let options = OpenOptions::new().commit_interval(Duration::ZERO).now(now);
    let volume = Inodes::open(device.clone(), &options).unwrap();
    (device, volume)
}

/// The journal's blocks; the first has its superblock.
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
            (_, 1) => InPlaceSuper,
            _ => InPlace,
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
        InPlace | InPlaceSuper => InPlaceFlush,
        JournalSuper => JournalSuperFlush,
        _ => LogFlush,
    }
}

/// The indices of each phase's writes or flushes, from the workload's start.
fn phases(base: &MemoryDevice, journal: &[u64]) -> BTreeMap<Phase, Vec<u64>> {
    let (device, volume) = open(base);
    let begin = device.inner().events();
    let durable = work(&volume);
    assert_eq!(durable.len(), 2);
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

/// Recovers the image by a mount of the kernel.
fn check_by_kernel(left: &MemoryDevice, durable: &DurableFiles, what: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    left.save(&path).unwrap();
    let Ok(mount) = KernelMount::new(&path, Access::ReadWrite) else { return };
    for (name, data) in durable {
        let held = std::fs::read(mount.path().join(&name[1..]));
        assert!(held.is_ok_and(|held| held == *data), "{what}: {name} was durable");
    }
    mount.unmount();
    e2fs::assert_clean(&path);
}

fn inject(base: &MemoryDevice, phase: Phase, kind: OpKind, fault: &Fault, n: u64) {
    let what = format!("{phase:?}, {fault:?}, at {n}");
    let (device, volume) = open(base);
    device.add(Rule::on(kind, fault.clone()).after(n).times(1));
    let durable = work(&volume);
    assert_eq!(device.struck(), 1, "{what}");
    let synced = volume.sync();
    if phase == Data {
        // The writer got the error, and the file system is not damaged.
        assert!(synced.is_ok() && durable.len() < 2, "{what}: {synced:?}");
        volume.close().unwrap();
    } else {
        let Err(Error::Aborted(cause)) = synced else { panic!("{what}: {synced:?}") };
        let code = if *fault == Fault::Error(ENOSPC) { ENOSPC } else { EIO };
        assert!(cause.to_string().contains(&format!("os error {code}")), "{what}: {cause}");
        check_aborted(&volume, &what);
        assert!(error_count(device.inner().inner()) > 0, "{what}: not recorded");
        assert!(matches!(volume.close(), Err(Error::Aborted(_))), "{what}");
    }
    drop(volume);
    let recorded = device.inner();
    let recording = recorded.recording();
    let stable = recording.image_at(recording.stable_at(recording.events().len()));
    check_by_kernel(&recorded.inner().snapshot(), &durable, &what);
    check_by_kernel(&stable, &durable, &format!("{what}, bare"));
    check_recovery(recorded.inner().snapshot(), &durable, &what);
    check_recovery(stable, &durable, &format!("{what}, bare"));
}

fn inject_in_phases(wanted: &[Phase], kind: OpKind, faults: &[Fault]) {
    let args = ["-t", "ext4", "-b", "1024", "-J", "size=1"];
    let image = need!(Image::make(8 << 20, &args));
    let journal = need!(journal_blocks(&image));
    let base = MemoryDevice::load(&image.path()).unwrap();
    let found = phases(&base, &journal);
    for phase in wanted {
        let places = found.get(phase).unwrap_or_else(|| panic!("no {phase:?} in {found:?}"));
        let chosen = BTreeSet::from([0, places.len() / 2, places.len() - 1]);
        for fault in faults {
            chosen.iter().for_each(|at| inject(&base, *phase, kind, fault, places[*at]));
        }
    }
}

#[test]
fn a_failed_write_in_each_phase() {
    let faults = [Fault::Error(EIO), Fault::Error(ENOSPC)];
    inject_in_phases(&WRITES, OpKind::Write, &faults);
    inject_in_phases(&[InPlaceSuper], OpKind::Write, &faults);
}

/// Half of a block is written. A torn journal superblock is valid, because its other half never
/// changes. A torn superblock of the file system is not, which Linux refuses, too.
#[test]
fn a_torn_write_in_each_phase() {
    inject_in_phases(&WRITES, OpKind::Write, &[Fault::Torn { sectors: 1 }]);
}

#[test]
fn a_failed_flush_in_each_phase() {
    inject_in_phases(&FLUSHES, OpKind::Flush, &[Fault::Error(EIO)]);
}
