//! Power cuts at every point of a mixed workload. The engine and e2fsck each recover a copy of the
//! image. Both copies must be clean and have everything that an fsync made durable.

mod common;

use common::{Image, KINDS, VolumeFs, VolumeTree, close};
use nextent::inodes::{Inodes, Staged};
use nextent::{Cred, OpenOptions};
use nextent_device::{
    BlockDevice, MemoryDevice, NbdAddress, NbdDevice, NbdOptions, NbdServer, RecordingDevice,
};
use nextent_ondisk::Incompat;
use nextent_sync::atomic::{AtomicUsize, Ordering};
use nextent_sync::{Arc, thread};
use nextent_testkit::tree::{Compare, HostDir, Tree, diff, walk};
use nextent_testkit::{
    Access, CutInfo, Explorer, KernelMount, PosixFs, RenameFlags, Variant, XattrFlags,
    append_with_promises, change_with_promises, check_changes, check_promises, e2fs, need,
    run_together,
};
use std::os::unix::net::UnixListener;

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

/// The device that the engine uses, over the one that is recorded.
type Between = fn(Arc<RecordingDevice<MemoryDevice>>) -> Arc<dyn BlockDevice>;

fn explore(args: &[&str], seed: u64, calls: usize, most: usize, between: Between) {
    let image = need!(Image::make(24 << 20, args));
    let base = MemoryDevice::load(&image.path()).unwrap();
    let device = Arc::new(RecordingDevice::new(base));
    let volume = Inodes::open(between(device.clone()), &OpenOptions::default()).unwrap();
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
    explore(KINDS[1].1, 7, 60, 120, |device| device);
}

#[test]
fn power_cuts_on_small_blocks() {
    explore(KINDS[2].1, 8, 60, 80, |device| device);
}

#[test]
fn power_cuts_on_ext3() {
    explore(KINDS[9].1, 9, 60, 80, |device| device);
}

/// Serves a device to a client in this process, over two connections.
fn through_nbd(device: Arc<RecordingDevice<MemoryDevice>>) -> Arc<dyn BlockDevice> {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = NbdServer::new(device, "");
    thread::spawn(move || {
        for client in listener.incoming().take(2).flatten() {
            let server = server.clone();
            thread::spawn(move || server.serve(client).unwrap());
        }
    });
    let address = format!("nbd+unix:///?socket={}", socket.display());
    let address = NbdAddress::parse(&address).unwrap();
    Arc::new(NbdDevice::open(&address, &NbdOptions::new().connections(2)).unwrap())
}

/// The client defers writes and changes their order. The server loses what no flush covers.
#[test]
fn power_cuts_of_an_nbd_server() {
    explore(KINDS[1].1, 10, 40, 60, through_nbd);
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

/// Files of the volume before staged changes.
fn fill(device: &Arc<MemoryDevice>) {
    let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
    let fs = VolumeFs(&volume);
    for n in 0..60usize {
        fs.mkdir(&format!("/d{n}"), 0o755).unwrap();
        fs.create(&format!("/d{n}/f"), 0o644).unwrap();
        fs.write(&format!("/d{n}/f"), 0, &vec![n as u8; 3000 * n]).unwrap();
    }
    volume.sync().unwrap();
    // Perhaps by a fast commit.
    fs.write("/d59/f", 7, b"synced").unwrap();
    fs.fsync("/d59/f").unwrap();
    close(&volume);
}

/// Changes of every kind: new data, data in place of older data, freed blocks, metadata.
fn change(fs: &VolumeFs<'_>) {
    fs.create("/new", 0o600).unwrap();
    fs.write("/new", 0, &vec![0xa5; 700_000]).unwrap();
    for n in 0..20 {
        fs.unlink(&format!("/d{n}/f")).unwrap();
        fs.rmdir(&format!("/d{n}")).unwrap();
    }
    for n in 20..40 {
        fs.write(&format!("/d{n}/f"), 100, b"in place of older data").unwrap();
        fs.set_xattr(&format!("/d{n}/f"), "user.new", &[7; 90], XattrFlags::Any).unwrap();
    }
    // The magic number of a log's block: it is escaped there.
    fs.write("/d41/f", 0, &0xc03b_3998u32.to_be_bytes()).unwrap();
    fs.truncate("/d42/f", 5).unwrap();
    fs.rename("/d43", "/d44/moved", RenameFlags::Replace).unwrap();
    for n in 0..30 {
        fs.mkdir(&format!("/d45/e{n}"), 0o711).unwrap();
    }
}

/// Whether the tree of a recovered volume is the new one, given both.
fn which(volume: &Inodes, (old, new): (&Tree, &Tree)) -> Result<bool, String> {
    let found = walk(&VolumeTree(volume)).map_err(|error| format!("walk: {error}"))?;
    let (to_old, to_new) = (diff(old, &found, &ALL), diff(new, &found, &ALL));
    match (to_old.is_empty(), to_new.is_empty()) {
        (true, false) => Ok(false),
        (false, true) => Ok(true),
        _ => Err(format!("neither: old {to_old:?}, new {to_new:?}")),
    }
}

const ALL: Compare =
    Compare { times: true, root: true, owners: true, dir_sizes: true, xattrs: true, holes: false };

/// Recovers one copy by an open and another by e2fsck; both must have the same tree.
fn check_staged(image: &MemoryDevice, trees: (&Tree, &Tree)) -> Result<bool, String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let theirs = dir.path().join("theirs");
    image.save(&theirs).map_err(|error| error.to_string())?;
    let ours = Arc::new(image.snapshot());
    let volume = Inodes::open(ours.clone(), &OpenOptions::default()).map_err(|e| e.to_string())?;
    let is_new = which(&volume, trees)?;
    close(&volume);
    drop(volume);
    let saved = dir.path().join("ours");
    ours.save(&saved).map_err(|error| error.to_string())?;
    for report in [e2fs::e2fsck(&saved), e2fs::e2fsck_recover(&theirs)] {
        let report = report.map_err(|skip| skip.to_string())?;
        if !report.is_clean() {
            return Err(format!("e2fsck: {report:?}"));
        }
    }
    let device = MemoryDevice::load(&theirs).map_err(|error| error.to_string())?;
    let options = OpenOptions::new().read_only(true);
    let volume = Inodes::open(Arc::new(device), &options).map_err(|e| e.to_string())?;
    match which(&volume, trees)? == is_new {
        true => Ok(is_new),
        false => Err(format!("e2fsck disagrees; new by us: {is_new}")),
    }
}

/// Recovers a copy by the kernel.
fn check_by_kernel(image: &MemoryDevice, (old, new): (&Tree, &Tree)) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    image.save(&path).unwrap();
    let mount = need!(KernelMount::new(&path, Access::ReadWrite));
    let found = walk(&HostDir::new(mount.path())).unwrap();
    mount.unmount();
    let how = Compare { dir_sizes: false, ..ALL };
    let same = [old, new].map(|tree| diff(tree, &found, &how).is_empty());
    assert!(same == [true, false] || same == [false, true], "{:?}", diff(old, &found, &how));
}

/// A power cut while staged changes are applied leaves all of them or none.
fn apply_staged(args: &[&str], most: usize) {
    let image = need!(Image::make(24 << 20, args));
    let base = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    fill(&base);
    let device = Arc::new(RecordingDevice::new(base.snapshot()));
    let scratch = tempfile::tempfile().unwrap();
    let staged = Staged::begin(device.clone(), scratch, &OpenOptions::default()).unwrap();
    let tree = || walk(&VolumeTree(staged.volume())).unwrap();
    let old = tree();
    change(&VolumeFs(staged.volume()));
    let new = tree();
    assert_eq!(staged.volume().credit_overruns(), 0);
    assert_eq!(device.events(), 0, "the device is written before the changes are complete");
    let applied = staged.apply().unwrap();
    assert!(applied.direct > 100 && applied.logged > 20, "{applied:?}");
    let recording = device.recording();
    let trees = (&old, &new);
    let found = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let explorer = Explorer { seed: 3, subsets: 12, most, ..Explorer::default() };
    let report = explorer.explore(&recording, |image, _| {
        let is_new = check_staged(&image, trees)?;
        found[usize::from(is_new)].fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    eprintln!("{} of {} images checked: {found:?}", report.checked, report.possible);
    report.assert_none_failed();
    assert!(found.iter().all(|count| count.load(Ordering::Relaxed) > 0), "{found:?}");
    assert_eq!(check_staged(&recording.image_at(recording.events().len()), trees), Ok(true));
    for cut in recording.flush_cuts() {
        check_by_kernel(&recording.image_at(cut), trees);
        check_by_kernel(&explorer.image(&recording, cut, Variant::Bare), trees);
    }
}

#[test]
fn staged_changes_are_applied_whole() {
    apply_staged(KINDS[0].1, 50);
}

#[test]
fn staged_changes_are_applied_whole_with_the_orphan_file() {
    apply_staged(KINDS[1].1, 30);
}

#[test]
fn staged_changes_are_applied_whole_on_small_blocks() {
    apply_staged(KINDS[2].1, 30);
}

#[test]
fn staged_changes_are_applied_whole_on_ext3() {
    apply_staged(KINDS[9].1, 30);
}

/// Bitmaps that were never written, descriptors elsewhere, and a log with fast commits.
#[test]
fn staged_changes_are_applied_whole_on_other_forms() {
    apply_staged(KINDS[5].1, 10);
    apply_staged(KINDS[6].1, 10);
    apply_staged(&["-t", "ext4", "-O", "fast_commit"], 20);
}

/// Changes that are not applied leave no trace; those without a journal are refused.
#[test]
fn staged_changes_may_be_dropped() {
    let image = need!(Image::make(24 << 20, KINDS[0].1));
    let base = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    fill(&base);
    let before = base.to_bytes();
    let scratch = || tempfile::tempfile().unwrap();
    let staged = Staged::begin(base.clone(), scratch(), &OpenOptions::default()).unwrap();
    change(&VolumeFs(staged.volume()));
    staged.volume().sync().unwrap();
    drop(staged);
    assert!(base.to_bytes() == before);
    let image = need!(Image::make(24 << 20, KINDS[7].1));
    let base = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let refused = Staged::begin(base, scratch(), &OpenOptions::default());
    assert!(matches!(refused, Err(nextent::Error::Unsupported(_))), "{refused:?}");
}
