//! Every operation on a volume with `fast_commit`, then an fsync, then a power cut: what is found
//! afterwards, by whoever recovers the volume, is the state at the fsync.
//!
//! The table in `cases` also says for each operation whether a fast commit carries it. One that
//! does would be no fault for durability, but a slow fsync; the other way round is data loss.

#[path = "../common/mod.rs"]
mod common;

mod cases;

use cases::{CASES, Case, Durable, World};
use common::{Image, VolumeTree, close};
use nextent::inodes::{Attr, Inodes, NewNode, ROOT_INO, SetAttr};
use nextent::{Cred, Error, OpenOptions};
use nextent_device::{Event, MemoryDevice, RecordingDevice};
use nextent_sync::{Arc, Duration};
use nextent_testkit::tree::{Compare, HostDir, Tree, assert_same, walk};
use nextent_testkit::{Access, KernelMount, PosixFs, Skip, e2fs, need};

/// The first large file sets that feature; the inode of `resize_inode` is one.
const NO_LARGE_FILE: &str = "fast_commit,^large_file,^resize_inode";
const FEATURES: [&[&str]; 3] = [
    &["-t", "ext4", "-b", "1024", "-J", "size=2", "-O", NO_LARGE_FILE],
    &["-t", "ext4", "-J", "size=8", "-O", NO_LARGE_FILE, "-O", "orphan_file,metadata_csum_seed"],
    &["-t", "ext4", "-I", "128", "-J", "size=8", "-O", NO_LARGE_FILE, "-O", "^metadata_csum"],
];

const HOW: Compare =
    Compare { times: true, root: true, owners: true, dir_sizes: true, xattrs: true, holes: true };

/// What the transaction has of the file before the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// Nothing.
    Clean,
    /// Blocks that were appended.
    Written,
    /// Blocks that a fast commit made durable.
    Synced,
}

fn open(device: Arc<RecordingDevice<MemoryDevice>>) -> Inodes {
    // No commit but those that are asked for.
    let options = OpenOptions::new().commit_interval(Duration::ZERO);
    Inodes::open(device, &options).unwrap()
}

fn open_again(device: &Arc<MemoryDevice>, read_only: bool) -> Inodes {
    let options = OpenOptions::new().read_only(read_only);
    Inodes::open(device.clone(), &options).unwrap()
}

/// Everything that can be asked of the volume's files.
struct State {
    tree: Tree,
    attrs: Vec<(String, Attr)>,
}

impl State {
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

/// A volume to begin with, and a place for what is left.
struct Base {
    image: Image,
    device: MemoryDevice,
    /// Whether Linux mounts it as mke2fs made it.
    mounts: bool,
}

impl Base {
    fn make(features: &[&str]) -> Result<Self, Skip> {
        let image = Image::make(24 << 20, features)?;
        let device = MemoryDevice::load(&image.path()).unwrap();
        let mounts = KernelMount::try_new(&image.path(), Access::ReadWrite, "");
        Ok(Self { mounts: matches!(mounts, Ok(Ok(_))), device, image })
    }
}

/// Runs one case; the recovered state is compared, and the kind of commit with the table.
fn run(base: &Base, case: &Case, before: Before) {
    let path = &base.image.path();
    let device = Arc::new(RecordingDevice::new(base.device.snapshot()));
    let volume = open(device.clone());
    let world = World::new(&volume);
    world.prepare();
    (case.prepare)(&world);
    // All in place: e2fsck 1.47 forgets what the log has of bitmaps when fast commits follow.
    common::put_in_place(&volume);
    // A file that comes to be in the operation, or gets its name there, was `/f` before if
    // anything.
    let file = if world.is_file(case.sync) { case.sync } else { "/f" };
    // A write to a file with a capability takes that, which is what such a case is about.
    let capable = world.fs.get_xattr(file, "security.capability").is_ok();
    let file = if capable { "/f" } else { file };
    if before != Before::Clean {
        world.fs.write(file, world.size(file), &[7; 4096]).unwrap();
    }
    if before == Before::Synced {
        let first = device.events();
        world.fs.fsync(file).unwrap();
        if writes_since(&device, first) > 1 {
            // A full commit: there is no fast one before it is in place.
            common::put_in_place(&volume);
        }
    }
    (case.run)(&world);
    let first = device.events();
    match case.sync {
        "" => volume.fsync(world.held.get().expect("the case holds a file")).unwrap(),
        path => world.fs.fsync(path).unwrap(),
    }
    let fast = writes_since(&device, first) == 1;
    let wanted = State::of(&volume);
    let recording = device.recording();
    let cut = recording.image_at(recording.stable_at(recording.events().len()));
    assert_eq!(fast, case.durable == Durable::ByFastCommit, "whether the commit is a fast one");

    let ours = Arc::new(cut.snapshot());
    let recovered = open_again(&ours, false);
    wanted.assert_same(&State::of(&recovered));
    close(&recovered);
    ours.save(path).unwrap();
    e2fs::assert_clean(path);

    // It also loses the log where voided fast commits are still there, as they may be until the
    // next flush; Linux does not.
    let voided = !fast && before == Before::Synced;
    let image = if voided { recording.image_at(recording.events().len()) } else { cut.snapshot() };
    image.save(path).unwrap();
    let Ok(report) = e2fs::e2fsck_recover(path) else { return };
    report.assert_clean();
    let theirs = Arc::new(MemoryDevice::load(path).unwrap());
    wanted.assert_same(&State::of(&open_again(&theirs, true)));

    cut.save(path).unwrap();
    if base.mounts {
        let mount = KernelMount::new(path, Access::ReadWrite).unwrap();
        // Linux counts unwritten blocks as data once they were read.
        let how = Compare { holes: false, ..HOW };
        assert_same(&wanted.tree, &walk(&HostDir::new(mount.path())).unwrap(), &how);
        mount.unmount();
        e2fs::assert_clean(path);
    }
    world.let_go();
    close(&volume);
}

fn run_all(features: &[&str], before: Before) {
    let base = need!(Base::make(features));
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

/// Where inodes have projects, that too is a field that no record carries.
#[test]
fn project() {
    let base = need!(Base::make(&["-t", "ext4", "-O", "fast_commit,project"]));
    let set = |world: &World<'_>| {
        world.set("/f", SetAttr { project: Some(17), ..SetAttr::default() });
    };
    let durable = Durable::ByFullCommit;
    let case = Case { name: "project", prepare: |_| (), run: set, sync: "/f", durable };
    run(&base, &case, Before::Clean);
    run(&base, &case, Before::Synced);
}

/// Volumes whose files may lie in their inodes are not written at all, so there is nothing to sync.
#[test]
fn inline_data_is_not_written() {
    let image = need!(Image::make(24 << 20, &["-t", "ext4", "-O", "fast_commit,inline_data"]));
    let volume = image.open();
    let made = volume.mknod(&Cred::root(), ROOT_INO, b"f", NewNode::Regular, 0o644);
    assert!(matches!(made, Err(Error::ReadOnly)), "{made:?}");
}
