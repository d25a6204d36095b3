//! Fast commits that the engine writes, replayed by the engine, e2fsck and the kernel.

mod common;

use common::{Image, VolumeFs, VolumeTree};
use nextent::OpenOptions;
use nextent::inodes::Inodes;
use nextent_device::{Event, MemoryDevice, RecordingDevice};
use nextent_sync::{Arc, thread};
use nextent_testkit::tree::{Compare, HostDir, assert_same, walk};
use nextent_testkit::{
    Access, CutInfo, Explorer, HostFs, KernelMount, PosixFs, RenameFlags, Variant, XattrFlags,
    append_with_promises, change_with_promises, check_changes, check_promises, e2fs, need,
    run_together,
};

const KINDS: [&[&str]; 3] = [
    &["-t", "ext4", "-O", "fast_commit"],
    &["-t", "ext4", "-O", "fast_commit,orphan_file,metadata_csum_seed"],
    &["-t", "ext4", "-b", "1024", "-O", "fast_commit,^metadata_csum,^64bit"],
];

const HOW: Compare =
    Compare { times: true, root: false, owners: true, dir_sizes: true, xattrs: true, holes: true };

fn open(device: &Arc<MemoryDevice>) -> Inodes {
    Inodes::open(device.clone(), &OpenOptions::default()).unwrap()
}

/// Makes files durable by a full commit; then grows each and syncs it by itself.
fn work(volume: &Inodes) {
    let fs = VolumeFs(volume);
    for n in 0..6 {
        fs.create(&format!("/file{n}"), 0o644).unwrap();
        fs.write(&format!("/file{n}"), 0, &[1; 100]).unwrap();
    }
    common::checkpoint_all(volume);
    for round in 0..2u64 {
        for n in 0..6u64 {
            let path = format!("/file{n}");
            // An append, a write beyond a hole, an overwrite, a write far away.
            let at = [100, 50_000 * round + 7000, 10, 200_000][n as usize % 4];
            fs.write(&path, at, &vec![n as u8 + 2; 9000 * (round as usize + 1)]).unwrap();
            fs.fsync(&path).unwrap();
        }
    }
}

#[test]
fn synced_data_is_recovered() {
    for args in KINDS {
        let image = need!(Image::make(64 << 20, args));
        let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
        let volume = open(&device);
        work(&volume);
        let wanted = walk(&VolumeTree(&volume)).unwrap();
        let cut = device.snapshot();
        // A sync without changes writes nothing.
        VolumeFs(&volume).fsync("/file1").unwrap();
        volume.close().unwrap();

        let ours = Arc::new(cut.snapshot());
        let recovered = open(&ours);
        assert!(recovered.recovery().fast_commits >= 12 * 4, "{:?}", recovered.recovery());
        assert_same(&wanted, &walk(&VolumeTree(&recovered)).unwrap(), &HOW);
        recovered.close().unwrap();
        ours.save(&image.path()).unwrap();
        e2fs::assert_clean(&image.path());

        cut.save(&image.path()).unwrap();
        need!(e2fs::e2fsck_recover(&image.path())).assert_clean();
        let theirs = Arc::new(MemoryDevice::load(&image.path()).unwrap());
        assert_same(&wanted, &walk(&VolumeTree(&open(&theirs))).unwrap(), &HOW);

        cut.save(&image.path()).unwrap();
        let mount = need!(KernelMount::new(&image.path(), Access::ReadWrite));
        assert_same(&wanted, &walk(&HostDir::new(mount.path())).unwrap(), &HOW);
        mount.unmount();
        e2fs::assert_clean(&image.path());
    }
}

fn writes(device: &RecordingDevice<MemoryDevice>) -> usize {
    let recording = device.recording();
    recording.events().iter().filter(|event| matches!(event, Event::Write { .. })).count()
}

/// A change that the records cannot have makes a full commit.
#[test]
fn other_changes_make_a_full_commit() {
    let image = need!(Image::make(64 << 20, KINDS[0]));
    let base = MemoryDevice::load(&image.path()).unwrap();
    let device = Arc::new(RecordingDevice::new(base));
    let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
    let fs = VolumeFs(&volume);
    fs.create("/a", 0o644).unwrap();
    fs.write("/a", 0, &[1; 40_000]).unwrap();
    fs.fsync("/a").unwrap();
    let cuts: [(&str, &dyn Fn()); 8] = [
        ("grown", &|| fs.write("/a", 40_000, &[2; 4096]).unwrap()),
        ("set aside", &|| fs.allocate("/a", 60_000, 9000, false).unwrap()),
        ("mode", &|| fs.chmod("/a", 0o600).unwrap()),
        ("cut", &|| fs.truncate("/a", 5000).unwrap()),
        ("another name", &|| fs.link("/a", "/b").unwrap()),
        ("its name", &|| fs.rename("/b", "/c", RenameFlags::Replace).unwrap()),
        ("attribute", &|| fs.set_xattr("/a", "user.x", b"y", XattrFlags::Any).unwrap()),
        ("grown", &|| fs.write("/a", 5000, &[3; 4096]).unwrap()),
    ];
    for (what, change) in cuts {
        common::checkpoint_all(&volume);
        change();
        let before = writes(&device);
        fs.fsync("/a").unwrap();
        let fast = writes(&device) - before == 1;
        assert_eq!(fast, what == "grown", "{what}");
        let wanted = walk(&VolumeTree(&volume)).unwrap();
        let recording = device.recording();
        let cut = Arc::new(recording.image_at(recording.stable_at(recording.events().len())));
        assert_same(&wanted, &walk(&VolumeTree(&open(&cut))).unwrap(), &HOW);
    }
    volume.close().unwrap();
    device.recording().image_at(device.recording().events().len()).save(&image.path()).unwrap();
    e2fs::assert_clean(&image.path());
}

/// Another file needs the freed blocks of a file that a fast commit made durable, because no others
/// are free. It gets them only in a later transaction.
#[test]
fn freed_blocks_are_reused_after_the_transaction() {
    let image = need!(Image::make(24 << 20, &["-t", "ext4", "-O", "fast_commit", "-J", "size=8"]));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = open(&device);
    let fs = VolumeFs(&volume);
    for name in ["/a", "/b"] {
        fs.create(name, 0o644).unwrap();
    }
    common::checkpoint_all(&volume);
    let info = CutInfo { cut: 0, variant: Variant::Prefix, marks: Vec::new() };
    for round in 0..20 {
        // Most free blocks, so that both files need the same ones.
        fs.write("/a", 0, &vec![round; 6 << 20]).unwrap();
        fs.fsync("/a").unwrap();
        fs.truncate("/a", 0).unwrap();
        fs.write("/b", 0, &vec![round + 100; 6 << 20]).unwrap();
        fs.fsync("/b").unwrap();
        check(&device.snapshot(), &info).unwrap();
        fs.truncate("/b", 0).unwrap();
    }
    volume.close().unwrap();
    device.save(&image.path()).unwrap();
    e2fs::assert_clean(&image.path());
}

/// Many threads sync many files, with changes of other kinds in between. Recovery has every synced
/// file.
#[test]
fn many_threads_share_fast_commits() {
    let image = need!(Image::make(64 << 20, KINDS[0]));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = open(&device);
    let fs = VolumeFs(&volume);
    (0..8).for_each(|n| fs.create(&format!("/file{n}"), 0o644).unwrap());
    volume.sync().unwrap();
    thread::scope(|scope| {
        for n in 0..8u8 {
            let fs = &fs;
            scope.spawn(move || {
                let path = format!("/file{n}");
                for round in 0..40u64 {
                    fs.write(&path, round * 3000, &[n + 1; 3000]).unwrap();
                    if n == 7 && round % 8 == 0 {
                        fs.create(&format!("/other{round}"), 0o600).unwrap();
                        fs.unlink(&format!("/other{round}")).unwrap();
                    }
                    fs.fsync(&path).unwrap();
                }
            });
        }
    });
    let cut = Arc::new(device.snapshot());
    volume.close().unwrap();
    let recovered = open(&cut);
    for n in 0..8u8 {
        let bytes = VolumeFs(&recovered).read(&format!("/file{n}"), 0, 200_000).unwrap();
        assert!(bytes.len() == 120_000 && bytes.iter().all(|byte| *byte == n + 1));
    }
    recovered.close().unwrap();
    cut.save(&image.path()).unwrap();
    e2fs::assert_clean(&image.path());
}

/// Recovers copies of `image` by an open and by a mount. An error describes what is wrong. e2fsck
/// 1.47.0 cannot recover every such image, nor every one of Linux: it stops at fast commits that a
/// full commit voided, and loses the log's changes of bitmaps.
fn check(image: &MemoryDevice, info: &CutInfo) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = dir.path().join("image");
    let device = Arc::new(image.snapshot());
    let options = OpenOptions::default();
    let volume = Inodes::open(device.clone(), &options).map_err(|e| format!("open: {e}"))?;
    check_promises(&VolumeFs(&volume), info)?;
    check_changes(&VolumeFs(&volume), info, STEPS)?;
    volume.close().map_err(|error| format!("close: {error}"))?;
    let check_clean = |recoverer: &str| match e2fs::e2fsck(&path) {
        Ok(report) if !report.is_clean() => Err(format!("recovered by {recoverer}: {report:?}")),
        _ => Ok(()),
    };
    device.save(&path).map_err(|error| error.to_string())?;
    check_clean("the engine")?;
    image.save(&path).map_err(|error| error.to_string())?;
    let mount = match KernelMount::try_new(&path, Access::ReadWrite, "") {
        Ok(mount) => mount.map_err(|text| format!("refused by the kernel: {text}"))?,
        Err(_) => return Ok(()),
    };
    let host = HostFs::new(mount.path());
    let kept = check_promises(&host, info).and_then(|()| check_changes(&host, info, STEPS));
    mount.unmount();
    kept.map_err(|error| format!("recovered by the kernel: {error}"))?;
    check_clean("the kernel")
}

/// Number of changes of every kind per file.
const STEPS: usize = 40;

/// Fast commits sync the checked files if the records can have the change. Other files change at
/// the same time.
#[test]
fn power_cuts() {
    let kinds = [
        (&["-t", "ext4", "-b", "1024", "-O", "fast_commit", "-J", "size=2"], 0, 60),
        (&["-t", "ext4", "-b", "1024", "-O", "fast_commit", "-J", "size=2"], 40, 60),
        (&["-t", "ext4", "-b", "4096", "-O", "fast_commit,orphan_file", "-J", "size=8"], 20, 100),
    ];
    for (seed, (args, calls, most)) in (10..).zip(kinds) {
        let image = need!(Image::make(24 << 20, args));
        let base = MemoryDevice::load(&image.path()).unwrap();
        let device = Arc::new(RecordingDevice::new(base));
        let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
        let fs = VolumeFs(&volume);
        thread::scope(|scope| {
            let (fs, device) = (&fs, &device);
            for file in 0..2 {
                scope.spawn(move || append_with_promises(fs, device, file, 12, 3000).unwrap());
            }
            for file in 0..2 {
                let file = seed as u32 * 2 + file;
                scope.spawn(move || change_with_promises(fs, device, file, STEPS).unwrap());
            }
            run_together(fs, 2, calls, seed).unwrap();
        });
        common::close(&volume);
        let explorer = Explorer { seed, most, ..Explorer::default() };
        let report = explorer.explore(&device.recording(), |image, info| check(&image, info));
        eprintln!("{} of {} images checked", report.checked, report.possible);
        report.assert_none_failed();
    }
}
