//! A synchronisation that a crash ends leaves a consistent image, in which each file is the old one
//! or the new one; the next run completes it.

use nextent::device::{BlockDevice, Event, MemoryDevice, RecordingDevice};
use nextent::inodes::{Inodes, ROOT_INO, SetAttr};
use nextent::mkfs::MkfsOptions;
use nextent::{Cred, Error, OpenOptions};
use nextent_image::sync::{Action, Item, SyncError, SyncObserver, Synced, TreeSync};
use nextent_image::{Observer, Problem};
use nextent_ondisk::inode::flags;
use nextent_testkit::{Explorer, e2fs};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

fn empty(size: u64) -> MemoryDevice {
    let device = MemoryDevice::new(size);
    let mut options = MkfsOptions::default();
    options.size = Some(size);
    nextent::mkfs::make(&device, &options).unwrap();
    device
}

fn sync(source: &Path, device: Arc<dyn BlockDevice>) -> Synced {
    let done = TreeSync::new(source).threads(1).run(device, b"/", &()).unwrap();
    assert_eq!((done.failed, done.kept), (0, 0));
    done
}

/// The names of the test, and their contents in a tree; none for a missing name or a directory.
fn state(read: impl Fn(&str) -> Option<Vec<u8>>) -> Vec<Option<Vec<u8>>> {
    ["same", "longer", "linked", "d/other", "gone", "new", "d/new", "kind", "back/x"]
        .iter()
        .map(|name| read(name))
        .collect()
}

/// How often the device was flushed.
fn commits(device: &RecordingDevice<MemoryDevice>) -> usize {
    let recording = device.recording();
    recording.events().iter().filter(|event| matches!(event, Event::Flush { .. })).count()
}

fn state_of_host(tree: &Path) -> Vec<Option<Vec<u8>>> {
    state(|name| fs::read(tree.join(name)).ok())
}

fn state_of_image(device: Arc<dyn BlockDevice>) -> Result<Vec<Option<Vec<u8>>>, String> {
    let volume = OpenOptions::new().open_device(device).map_err(|error| error.to_string())?;
    let found = state(|name| match volume.read(format!("/{name}")) {
        Ok(bytes) => Some(bytes),
        Err(Error::NotFound | Error::NotDir | Error::IsDir) => None,
        Err(error) => Some(error.to_string().into_bytes()),
    });
    volume.close().map_err(|error| error.to_string())?;
    Ok(found)
}

/// Has each change below `/` and `/d` committed at once, as by chattr(1) +SD; otherwise one commit
/// would hold all.
fn commit_each_change(device: Arc<dyn BlockDevice>) {
    let volume = Inodes::open(device, &OpenOptions::new()).unwrap();
    let dir = volume.lookup(&Cred::root(), ROOT_INO, b"d").unwrap();
    for ino in [ROOT_INO, dir.ino] {
        let bits = volume.getattr(ino).unwrap().flags | flags::SYNC | flags::DIRSYNC;
        let set = SetAttr { flags: Some(bits), ..SetAttr::default() };
        volume.setattr(&Cred::root(), ino, &set).unwrap();
    }
    volume.close().unwrap();
}

fn change(tree: &Path) {
    let at = |name: &str| tree.join(name);
    fs::write(at("longer"), [2; 30_000]).unwrap();
    fs::write(at("linked"), [3; 9000]).unwrap();
    fs::remove_file(at("gone")).unwrap();
    fs::write(at("new"), [4; 12_000]).unwrap();
    fs::write(at("d/new"), "new").unwrap();
    fs::remove_file(at("kind")).unwrap();
    fs::create_dir(at("kind")).unwrap();
    fs::remove_dir_all(at("back")).unwrap();
    fs::write(at("back"), "file").unwrap();
}

#[test]
fn a_crash_leaves_old_files_or_new_ones() {
    let scratch = tempfile::tempdir().unwrap();
    let tree = scratch.path().join("tree");
    let at = |name: &str| tree.join(name);
    fs::create_dir_all(at("d")).unwrap();
    fs::create_dir(at("back")).unwrap();
    for name in ["same", "longer", "linked", "gone", "kind", "back/x"] {
        fs::write(at(name), [1; 5000]).unwrap();
    }
    fs::hard_link(at("linked"), at("d/other")).unwrap();
    let base = empty(8 << 20);
    let device = Arc::new(base.snapshot());
    sync(&tree, device.clone());
    commit_each_change(device.clone());
    let old = state_of_host(&tree);
    change(&tree);
    let new = state_of_host(&tree);
    let device = Arc::new(RecordingDevice::new(device.snapshot()));
    let done = sync(&tree, device.clone());
    assert_eq!((done.created, done.updated, done.removed), (2, 7, 2));
    let check = |image: MemoryDevice| {
        let path = tempfile::NamedTempFile::new().unwrap();
        image.save(path.path()).unwrap();
        let image = Arc::new(image);
        let found = state_of_image(image.clone())?;
        for (at, found) in found.iter().enumerate() {
            if *found != old[at] && *found != new[at] {
                return Err(format!("name {at} is neither the old file nor the new one"));
            }
        }
        if let Ok(report) = e2fs::e2fsck_recover(path.path())
            && !report.is_clean()
        {
            return Err(report.text);
        }
        // The next run completes it, and a further one finds nothing.
        sync(&tree, image.clone());
        if state_of_image(image.clone())? != new || sync(&tree, image).blocks > 0 {
            return Err("the next run did not complete it".into());
        }
        Ok(())
    };
    assert!(commits(&device) > 20);
    let explorer = Explorer { most: 40, subsets: 1, ..Explorer::default() };
    explorer.explore(&device.recording(), |image, _| check(image)).assert_none_failed();
}

#[derive(Default)]
struct Events(Mutex<Vec<String>>);

impl Observer for Events {
    fn problem(&self, problem: &Problem<'_>) {
        self.0.lock().unwrap().push(format!("{}: {}", problem.path, problem.error));
    }
}

impl SyncObserver for Events {
    fn item(&self, item: &Item<'_>) {
        let path = String::from_utf8_lossy(item.path);
        self.0.lock().unwrap().push(format!("{:?} {path}", item.action));
        assert!(item.action != Action::Replace || item.differs.contents);
    }
}

#[test]
fn a_program_gets_changes_and_failures() {
    let scratch = tempfile::tempdir().unwrap();
    let tree = scratch.path().join("tree");
    fs::create_dir_all(tree.join("d")).unwrap();
    fs::write(tree.join("f"), "1").unwrap();
    let device: Arc<dyn BlockDevice> = Arc::new(empty(8 << 20));
    let run = |sync: &TreeSync| {
        let events = Events::default();
        let done = sync.run(device.clone(), b"/top", &events).unwrap();
        (done, events.0.into_inner().unwrap())
    };
    let plain = TreeSync::new(&tree).owner(1, 2);
    let (done, events) = run(&TreeSync::new(&tree).owner(1, 2).dry_run(true));
    assert_eq!(
        (done.created, done.blocks, events),
        (3, 0, ["Create ", "Create d", "Create f"].map(str::to_owned).to_vec())
    );
    assert_eq!(run(&plain).0.created, 3);
    fs::write(tree.join("f"), "22").unwrap();
    fs::remove_dir(tree.join("d")).unwrap();
    let (done, events) = run(&plain);
    assert_eq!((done.created, done.updated, done.removed), (0, 2, 1));
    assert_eq!(events, ["SetAttributes ", "Replace f", "Remove d"]);
    assert_eq!(run(&plain), (Synced::default(), vec![]));
    let missing = TreeSync::new(&tree.join("none")).run(device.clone(), b"/", &());
    assert!(matches!(missing, Err(SyncError::Source { .. })));
    let below = plain.run(device, b"/a/b", &());
    assert!(matches!(below, Err(SyncError::Directory { .. })));
}

/// Appends to a file whenever contents were copied.
struct Appending(PathBuf, Events);

impl Observer for Appending {
    fn bytes(&self, _: u64) {
        let mut file = fs::File::options().append(true).open(&self.0).unwrap();
        file.write_all(b"more").unwrap();
    }

    fn problem(&self, problem: &Problem<'_>) {
        self.1.problem(problem);
    }
}

impl SyncObserver for Appending {}

#[test]
fn a_file_that_changes_while_it_is_read_stays_old() {
    let scratch = tempfile::tempdir().unwrap();
    let tree = scratch.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("f"), "old").unwrap();
    fs::write(tree.join("gone"), "").unwrap();
    let device = Arc::new(empty(8 << 20));
    sync(&tree, device.clone());
    fs::write(tree.join("f"), "new").unwrap();
    fs::remove_file(tree.join("gone")).unwrap();
    let observer = Appending(tree.join("f"), Events::default());
    let done = TreeSync::new(&tree).run(device.clone(), b"/", &observer).unwrap();
    assert_eq!((done.failed, done.kept, done.removed), (1, 1, 0));
    let said = observer.1.0.into_inner().unwrap();
    assert!(said.len() == 1 && said[0].ends_with("f: changed while it was read"), "{said:?}");
    let read = |name: &str| {
        let volume = OpenOptions::new().open_device(device.clone()).unwrap();
        let bytes = volume.read(name).unwrap();
        volume.close().unwrap();
        bytes
    };
    assert_eq!((&read("/f")[..], &read("/gone")[..]), (&b"old"[..], &b""[..]));
    sync(&tree, device.clone());
    assert_eq!(&read("/f"), b"newmore");
    assert_eq!(sync(&tree, device).blocks, 0);
}
