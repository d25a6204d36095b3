//! Every operation on a volume with `fast_commit`, then an fsync, then a power cut. After a
//! recovery by the engine, e2fsck or Linux, the volume has the state at the fsync.
//!
//! The table in `cases` also says whether a fast commit can make the operation durable. A needless
//! full commit is a slow fsync; a fast commit without the change is data loss.

#[path = "../common/mod.rs"]
mod common;

mod cases;

use cases::{CASES, Durable, OperationCase, TestVolume};
use common::{Image, VolumeTree, close};
use nextent::inodes::{Attr, Inodes, NewNode, ROOT_INO, SetAttr};
use nextent::{Cred, Error, OpenOptions};
use nextent_device::{Event, MemoryDevice, RecordingDevice};
use nextent_sync::{Arc, Duration};
use nextent_testkit::tree::{Compare, HostDir, Tree, assert_same, walk};
use nextent_testkit::{Access, KernelMount, PosixFs, Skip, e2fs, need};

/// The first large file sets `large_file`. The inode of `resize_inode` is a large file.
const NO_LARGE_FILE: &str = "fast_commit,^large_file,^resize_inode";
const FEATURES: [&[&str]; 3] = [
    &["-t", "ext4", "-b", "1024", "-J", "size=2", "-O", NO_LARGE_FILE],
    &["-t", "ext4", "-J", "size=8", "-O", NO_LARGE_FILE, "-O", "orphan_file,metadata_csum_seed"],
    &["-t", "ext4", "-I", "128", "-J", "size=8", "-O", NO_LARGE_FILE, "-O", "^metadata_csum"],
];

const HOW: Compare =
    Compare { times: true, root: true, owners: true, dir_sizes: true, xattrs: true, holes: true };

/// The file's changes in the transaction before the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// None.
    Clean,
    /// Appended blocks.
    Written,
    /// Appended blocks that a fast commit made durable.
    Synced,
}

fn open(device: Arc<RecordingDevice<MemoryDevice>>) -> Inodes {
    // Only requested commits.
    let options = OpenOptions::new().commit_interval(Duration::ZERO);
    Inodes::open(device, &options).unwrap()
}

fn open_again(device: &Arc<MemoryDevice>, read_only: bool) -> Inodes {
    let options = OpenOptions::new().read_only(read_only);
    Inodes::open(device.clone(), &options).unwrap()
}

/// The tree of a volume and its counts.
struct VolumeState {
    tree: Tree,
    attrs: Vec<(String, Attr)>,
}

impl VolumeState {
    fn of(volume: &Inodes) -> Self {
        let tree = walk(&VolumeTree(volume)).unwrap();
        let attr = |path: &[u8]| volume.resolve(&Cred::root(), path, false).unwrap();
        let attrs = tree
            .entries
            .iter()
            .map(|entry| (String::from_utf8_lossy(&entry.path).into_owned(), attr(&entry.path)));
        Self { attrs: attrs.collect(), tree }
    }

    fn assert_same(&self, other: &Self) {
        assert_same(&self.tree, &other.tree, &HOW);
        for ((path, mine), (_, theirs)) in self.attrs.iter().zip(&other.attrs) {
            assert_eq!(mine, theirs, "{path}");
        }
    }
}

fn writes_since(device: &RecordingDevice<MemoryDevice>, first: usize) -> usize {
    let recording = device.recording();
    let events = &recording.events()[first..];
    events.iter().filter(|event| matches!(event, Event::Write { .. })).count()
}

/// The initial volume, and a path for the recovered image.
struct BaseVolume {
    image: Image,
    device: MemoryDevice,
    /// Whether Linux mounts it as mke2fs made it.
    mounts: bool,
}

impl BaseVolume {
    fn make(features: &[&str]) -> Result<Self, Skip> {
        let image = Image::make(24 << 20, features)?;
        let device = MemoryDevice::load(&image.path()).unwrap();
        let mounts = KernelMount::try_new(&image.path(), Access::ReadWrite, "");
        Ok(Self { mounts: matches!(mounts, Ok(Ok(_))), device, image })
    }
}

/// Runs one case. Compares the recovered state, and the kind of commit with the table.
fn run(base: &BaseVolume, case: &OperationCase, before: Before) {
    let path = &base.image.path();
    let device = Arc::new(RecordingDevice::new(base.device.snapshot()));
    let volume = open(device.clone());
    let test = TestVolume::new(&volume);
    test.prepare();
    (case.prepare)(&test);
    // Checkpoint all: e2fsck 1.47 loses the log's changes of bitmaps if fast commits follow them.
    common::checkpoint_all(&volume);
    // If the operation creates or names the synced file, that file was `/f` before, or did not
    // exist.
    let file = if test.is_file(case.sync) { case.sync } else { "/f" };
    // A write would remove a capability, which is the operation of such a case.
    let capable = test.fs.get_xattr(file, "security.capability").is_ok();
    let file = if capable { "/f" } else { file };
    if before != Before::Clean {
        test.fs.write(file, test.size(file), &[7; 4096]).unwrap();
    }
    if before == Before::Synced {
        let first = device.events();
        test.fs.fsync(file).unwrap();
        if writes_since(&device, first) > 1 {
            // A full commit: no fast commit follows before its checkpoint.
            common::checkpoint_all(&volume);
        }
    }
    (case.run)(&test);
    let first = device.events();
    match case.sync {
        "" => volume.fsync(test.held.get().expect("the case holds a file")).unwrap(),
        path => test.fs.fsync(path).unwrap(),
    }
    let fast = writes_since(&device, first) == 1;
    let wanted = VolumeState::of(&volume);
    let recording = device.recording();
    let cut = recording.image_at(recording.stable_at(recording.events().len()));
    assert_eq!(fast, case.durable == Durable::ByFastCommit, "whether the commit is a fast one");

    let ours = Arc::new(cut.snapshot());
    let recovered = open_again(&ours, false);
    wanted.assert_same(&VolumeState::of(&recovered));
    close(&recovered);
    ours.save(path).unwrap();
    e2fs::assert_clean(path);

    // e2fsck also loses a log with voided fast commits, which may be there until the next flush.
    // Linux does not.
    let voided = !fast && before == Before::Synced;
    let image = if voided { recording.image_at(recording.events().len()) } else { cut.snapshot() };
    image.save(path).unwrap();
    let Ok(report) = e2fs::e2fsck_recover(path) else { return };
    report.assert_clean();
    let theirs = Arc::new(MemoryDevice::load(path).unwrap());
    wanted.assert_same(&VolumeState::of(&open_again(&theirs, true)));

    cut.save(path).unwrap();
    if base.mounts {
        let mount = KernelMount::new(path, Access::ReadWrite).unwrap();
        // Linux reports unwritten blocks as data after they were read.
        let how = Compare { holes: false, ..HOW };
        assert_same(&wanted.tree, &walk(&HostDir::new(mount.path())).unwrap(), &how);
        mount.unmount();
        e2fs::assert_clean(path);
    }
    test.close_held();
    close(&volume);
}

fn run_all(features: &[&str], before: Before) {
    let base = need!(BaseVolume::make(features));
    let mut failed = Vec::new();
    for case in CASES {
        let one = std::panic::AssertUnwindSafe(|| run(&base, case, before));
        if std::panic::catch_unwind(one).is_err() {
            failed.push(case.name);
        }
    }
    assert!(failed.is_empty(), "{features:?}, {before:?}: wrong after {failed:?}");
}

#[test]
fn small_blocks() {
    run_all(FEATURES[0], Before::Clean);
}

#[test]
fn small_blocks_after_a_write() {
    run_all(FEATURES[0], Before::Written);
}

#[test]
fn small_blocks_after_a_fast_commit() {
    run_all(FEATURES[0], Before::Synced);
}

#[test]
fn orphan_file() {
    run_all(FEATURES[1], Before::Clean);
}

#[test]
fn orphan_file_after_a_fast_commit() {
    run_all(FEATURES[1], Before::Synced);
}

#[test]
fn small_inodes() {
    run_all(FEATURES[2], Before::Written);
}

#[test]
fn small_inodes_after_a_fast_commit() {
    run_all(FEATURES[2], Before::Synced);
}

/// A change of the project requires a full commit.
#[test]
fn project() {
    let base = need!(BaseVolume::make(&["-t", "ext4", "-O", "fast_commit,project"]));
    let set = |test: &TestVolume<'_>| {
        test.set("/f", SetAttr { project: Some(17), ..SetAttr::default() });
    };
    let durable = Durable::ByFullCommit;
    let case = OperationCase { name: "project", prepare: |_| (), run: set, sync: "/f", durable };
    run(&base, &case, Before::Clean);
    run(&base, &case, Before::Synced);
}

/// The engine does not write to volumes with inline data, so no fsync is needed.
#[test]
fn inline_data_is_not_written() {
    let image = need!(Image::make(24 << 20, &["-t", "ext4", "-O", "fast_commit,inline_data"]));
    let volume = image.open();
    let made = volume.mknod(&Cred::root(), ROOT_INO, b"f", NewNode::Regular, 0o644);
    assert!(matches!(made, Err(Error::ReadOnly)), "{made:?}");
}
