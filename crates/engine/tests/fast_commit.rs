//! Replay of fast commits that the kernel wrote before a power cut.

mod common;

use common::{Image, VolumeFs, VolumeTree};
use nextent::OpenOptions;
use nextent::check::{CheckOptions, check};
use nextent::inodes::Inodes;
use nextent_device::{MemoryDevice, RecordingDevice};
use nextent_sync::Arc;
use nextent_sync::atomic::{AtomicUsize, Ordering};
use nextent_testkit::tree::{Compare, HostDir, Tree, assert_same, diff, walk};
use nextent_testkit::{Access, Explorer, KernelMount, PosixFs, Skip, e2fs, need};
use std::fs::File;
use std::io::Write;

/// Writes files below `root` and syncs each, which makes fast commits.
fn work(root: &std::path::Path) {
    let sync = |path: &std::path::Path| File::open(path).unwrap().sync_all().unwrap();
    for n in 0..6u8 {
        let path = root.join(format!("file{n}"));
        let mut file = File::create(&path).unwrap();
        file.write_all(&vec![n + 1; 3000 * (usize::from(n) + 1) * 5]).unwrap();
        file.sync_all().unwrap();
    }
    std::fs::hard_link(root.join("file1"), root.join("link1")).unwrap();
    sync(&root.join("link1"));
    std::fs::remove_file(root.join("file2")).unwrap();
    sync(&root.join("file3"));
    std::fs::create_dir(root.join("dir")).unwrap();
    let inside = root.join("dir/inside");
    File::create(&inside).unwrap().write_all(&[9; 9000]).unwrap();
    sync(&inside);
    let cut = File::options().write(true).open(root.join("file4")).unwrap();
    cut.set_len(5000).unwrap();
    cut.sync_all().unwrap();
}

/// An image as after a power cut, with fast commits of the kernel, and the tree that was synced.
fn cut(args: &[&str]) -> Result<(MemoryDevice, Tree), Skip> {
    let image = Image::make(64 << 20, args)?;
    let mount = KernelMount::new(&image.path(), Access::ReadWrite)?;
    work(mount.path());
    let wanted = walk(&HostDir::new(mount.path())).unwrap();
    // A copy of the mounted image is the state after a power cut.
    let cut = MemoryDevice::load(&image.path()).unwrap();
    mount.unmount();
    Ok((cut, wanted))
}

const HOW: Compare = Compare {
    times: false,
    root: false,
    owners: true,
    dir_sizes: false,
    xattrs: true,
    holes: false,
};

fn open(device: &Arc<MemoryDevice>) -> Inodes {
    Inodes::open(device.clone(), &OpenOptions::default()).unwrap()
}

fn assert_e2fsck_clean(device: &MemoryDevice) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    device.save(&path).unwrap();
    e2fs::assert_clean(&path);
}

const KINDS: [&[&str]; 3] = [
    &["-t", "ext4", "-O", "fast_commit"],
    &["-t", "ext4", "-O", "fast_commit,orphan_file"],
    &["-t", "ext4", "-b", "1024", "-O", "fast_commit,^metadata_csum,^64bit"],
];

#[test]
fn the_kernels_fast_commits_are_replayed() {
    for args in KINDS {
        let (cut, wanted) = need!(cut(args));
        let read_only = OpenOptions::new().read_only(true);
        let volume = Inodes::open(Arc::new(cut.snapshot()), &read_only).unwrap();
        assert_same(&wanted, &walk(&VolumeTree(&volume)).unwrap(), &HOW);
        assert!(volume.recovery().fast_commits > 0, "{:?}", volume.recovery());
        assert!(VolumeFs(&volume).create("/x", 0o600).is_err());
        drop(volume);
        let device = Arc::new(cut);
        let volume = open(&device);
        assert!(volume.recovery().fast_commits > 0);
        assert_same(&wanted, &walk(&VolumeTree(&volume)).unwrap(), &HOW);
        volume.close().unwrap();
        assert_e2fsck_clean(&device);
    }
}

fn recovered_by_e2fsck(image: &MemoryDevice) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    image.save(&path).unwrap();
    match e2fs::e2fsck_recover(&path) {
        Ok(report) if !report.is_clean() => Err(format!("recovered by e2fsck: {report:?}")),
        _ => Ok(()),
    }
}

/// Whether the fast-commit area begins with a fast commit, valid or void: a head of tag 9 and
/// length 8.
fn has_fast_commits(image: &MemoryDevice) -> bool {
    let block = if image.to_bytes()[1024 + 24] == 0 { 1024 } else { 4096 };
    image.to_bytes().chunks(block).any(|block| block.starts_with(&[9, 0, 8, 0, 0, 0, 0, 0]))
}

/// After a power cut at any point of a recovery, the next recovery has the same result.
#[test]
fn a_power_cut_may_interrupt_recovery() {
    for args in KINDS {
        let (cut, wanted) = need!(cut(args));
        let device = Arc::new(RecordingDevice::new(cut));
        let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
        volume.close().unwrap();
        let judged = AtomicUsize::new(0);
        let explorer = Explorer { subsets: 4, most: 150, ..Explorer::default() };
        let report = explorer.explore(&device.recording(), |image, _| {
            let device = Arc::new(image.snapshot());
            let volume = Inodes::open(device.clone(), &OpenOptions::default())
                .map_err(|error| error.to_string())?;
            // e2fsck 1.47 cannot replay the kernel's log here, but the log that this recovery
            // leaves.
            if volume.recovery().fast_commits == 0 && !has_fast_commits(&image) {
                recovered_by_e2fsck(&image)?;
                judged.fetch_add(1, Ordering::Relaxed);
            }
            let found = walk(&VolumeTree(&volume)).map_err(|error| error.to_string())?;
            let differences = diff(&wanted, &found, &HOW);
            if !differences.is_empty() {
                return Err(differences.join("\n"));
            }
            volume.close().map_err(|error| error.to_string())?;
            assert_e2fsck_clean(&device);
            Ok(())
        });
        report.assert_none_failed();
        assert!(report.checked > 15 && judged.into_inner() > 5, "{report:?}");
    }
}

/// Each power cut comes a little later in the recovery of the image that the previous cut left.
#[test]
fn many_power_cuts_may_interrupt_recovery() {
    let (mut image, wanted) = need!(cut(KINDS[0]));
    for n in 0..20 {
        let device = Arc::new(RecordingDevice::new(image));
        drop(Inodes::open(device.clone(), &OpenOptions::default()).unwrap());
        image = device.image_at((2 * n).min(device.events()));
    }
    let device = Arc::new(image);
    let volume = open(&device);
    assert_same(&wanted, &walk(&VolumeTree(&volume)).unwrap(), &HOW);
    volume.close().unwrap();
    assert_e2fsck_clean(&device);
}

/// A check reports on the volume after a replay, and changes nothing.
#[test]
fn a_check_replays_in_memory() {
    for args in KINDS {
        let (cut, _) = need!(cut(args));
        let device = Arc::new(cut);
        let before = device.to_bytes();
        let report = check(device.clone(), &CheckOptions::default(), &|_| ()).unwrap();
        let lines: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
        assert!(report.is_clean() && report.recovery_pending, "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("records of fast commits")), "{lines:?}");
        assert!(device.to_bytes() == before);
    }
}
