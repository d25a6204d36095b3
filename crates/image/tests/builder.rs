//! Images that a program builds, checked by e2fsck, and what a failed build leaves.

#[path = "builder/sync.rs"]
mod sync;

use nextent::Volume;
use nextent::mkfs::{Fit, Free, FsType, MkfsOptions};
use nextent_image::{BuildError, Contents, ImageBuilder, Observer, Problem};
use nextent_testkit::{e2fs, need};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

/// The events of a build.
#[derive(Default)]
struct Events {
    problems: Mutex<Vec<String>>,
    entries: Mutex<u64>,
    bytes: Mutex<u64>,
}

impl Observer for Events {
    fn entry(&self) {
        *self.entries.lock().unwrap() += 1;
    }

    fn bytes(&self, bytes: u64) {
        *self.bytes.lock().unwrap() += bytes;
    }

    fn problem(&self, problem: &Problem<'_>) {
        self.problems.lock().unwrap().push(format!("{}: {}", problem.path, problem.error));
    }
}

fn options(size: u64) -> MkfsOptions {
    let mut options = MkfsOptions::default();
    options.size = Some(size);
    options
}

/// Opens an image. A child process that another test is starting holds the image's lock until it
/// executes its program, so a refusal may be temporary.
fn open(image: &Path) -> Volume {
    for _ in 0..1000 {
        if let Ok(volume) = Volume::open(image) {
            return volume;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Volume::open(image).unwrap()
}

fn tree(at: &Path) {
    fs::create_dir_all(at.join("dir")).unwrap();
    fs::write(at.join("dir/file"), [7; 10_000]).unwrap();
    fs::write(at.join("empty"), "").unwrap();
    std::os::unix::fs::symlink("dir/file", at.join("link")).unwrap();
}

/// A tar stream with one file of `size` bytes, of which `present` are there.
fn tar(size: u64, present: usize) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.set_path("file").unwrap();
    header.set_size(size);
    header.set_mode(0o640);
    header.set_uid(7);
    header.set_gid(8);
    header.set_mtime(1000);
    header.set_cksum();
    let mut stream = header.as_bytes().to_vec();
    stream.extend(vec![b'x'; present]);
    stream.resize(stream.len().next_multiple_of(512) + 1024, 0);
    stream
}

#[test]
fn a_directory_becomes_an_image() {
    let scratch = tempfile::tempdir().unwrap();
    let (source, image) = (scratch.path().join("tree"), scratch.path().join("disk.img"));
    tree(&source);
    let events = Events::default();
    let built = ImageBuilder::new(options(16 << 20))
        .contents(Contents::open(&source).unwrap())
        .root_owner(5, 6)
        .build(&image, &events)
        .unwrap();
    assert!(built.superblock().free_blocks_count() < built.geometry().blocks_count);
    assert_eq!(*events.problems.lock().unwrap(), Vec::<String>::new());
    assert_eq!(*events.entries.lock().unwrap(), 4);
    assert_eq!(*events.bytes.lock().unwrap(), 10_000);
    let volume = open(&image);
    assert_eq!(volume.read("/link").unwrap(), [7; 10_000]);
    let root = volume.metadata("/").unwrap();
    assert_eq!((root.uid(), root.gid()), (5, 6));
    let owner = fs::metadata(source.join("empty")).unwrap().uid();
    assert_eq!(volume.metadata("/empty").unwrap().uid(), owner);
    volume.close().unwrap();
    drop(volume);
    need!(e2fs::e2fsck(&image)).assert_clean();
}

#[test]
fn a_stream_becomes_an_image_at_an_offset() {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("disk.img");
    let mut limited = options(16 << 20);
    limited.clock = Some(500);
    ImageBuilder::new(limited)
        .contents(Contents::tar(&tar(5000, 5000)[..], "a stream"))
        .offset(1 << 20)
        .build(&image, &())
        .unwrap();
    let bytes = fs::read(&image).unwrap();
    assert!(bytes[..1 << 20].iter().all(|byte| *byte == 0));
    let part = scratch.path().join("part.img");
    fs::write(&part, &bytes[1 << 20..]).unwrap();
    let volume = open(&part);
    let file = volume.metadata("/file").unwrap();
    assert_eq!((file.uid(), file.gid(), file.len()), (7, 8, 5000));
    assert_eq!(file.modified(), UNIX_EPOCH + Duration::from_secs(500), "no later than the clock");
    volume.close().unwrap();
    drop(volume);
    need!(e2fs::e2fsck(&part)).assert_clean();
}

#[test]
fn an_incomplete_image_is_removed_or_marked() {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("disk.img");
    let build = |size: Option<u64>| {
        let mut options = MkfsOptions::default();
        options.size = size;
        let events = Events::default();
        let cut = tar(100_000, 700);
        let contents = Contents::tar(&cut[..], "a stream");
        let failed = ImageBuilder::new(options).contents(contents).build(&image, &events);
        assert!(matches!(failed, Err(BuildError::Incomplete { failures: 1 })), "{failed:?}");
        let problems = events.problems.into_inner().unwrap();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("ends in the middle"), "{problems:?}");
    };
    build(Some(16 << 20));
    assert!(!image.exists(), "a file that did not exist before is removed");
    fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    build(None);
    // s_state, at byte 58 of the superblock: not clean, with errors.
    let bytes = fs::read(&image).unwrap();
    assert_eq!(bytes[1024 + 58] & 3, 2);
}

#[test]
fn a_refused_build_leaves_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("disk.img");
    let refused = ImageBuilder::new(MkfsOptions::default()).build(&image, &());
    assert!(matches!(refused, Err(BuildError::NoSize)), "{refused:?}");
    let refused = ImageBuilder::new(options(8192)).build(&image, &());
    assert!(matches!(refused, Err(BuildError::Mkfs(_))), "{refused:?}");
    let missing = Contents::open(scratch.path().join("missing"));
    assert!(matches!(missing, Err(BuildError::Contents { .. })), "{missing:?}");
    let draft = ImageBuilder::new(options(16 << 20)).prepare(&image, &()).unwrap();
    assert!(draft.plan().warnings().is_empty());
    drop(draft);
    assert!(!image.exists());
}

/// Adds files to a directory of the source while it is copied, as another program may.
struct Growing {
    dir: std::path::PathBuf,
    /// Files to add.
    left: AtomicU64,
    bytes: usize,
    problems: Mutex<Vec<String>>,
}

impl Growing {
    fn new(dir: &Path, files: u64, bytes: usize) -> Self {
        let (left, problems) = (AtomicU64::new(files), Mutex::default());
        Self { dir: dir.to_owned(), left, bytes, problems }
    }
}

impl Observer for Growing {
    fn entry(&self) {
        // The entries of the top come before those of the directory.
        let n = self.left.load(Ordering::Relaxed);
        if n > 0 {
            self.left.store(n - 1, Ordering::Relaxed);
            fs::write(self.dir.join(format!("more-{n}")), vec![n as u8; self.bytes]).unwrap();
        }
    }

    fn problem(&self, problem: &Problem<'_>) {
        self.problems.lock().unwrap().push(format!("{}: {}", problem.path, problem.error));
    }
}

/// A directory with many files and an empty directory.
fn wide_tree(at: &Path, files: usize) {
    fs::create_dir_all(at.join("z")).unwrap();
    for n in 0..files {
        fs::write(at.join(format!("file-{n}")), "x").unwrap();
    }
}

#[test]
fn a_source_that_grows_gets_a_larger_image() {
    let none = Fit::new(Free::Bytes(0));
    for (fit, more, bytes) in [(none, 200, 0), (none, 3, 1 << 20), (Fit::default(), 5, 8 << 20)] {
        let scratch = tempfile::tempdir().unwrap();
        let (source, image) = (scratch.path().join("tree"), scratch.path().join("disk.img"));
        wide_tree(&source, 300);
        let growing = Growing::new(&source.join("z"), more, bytes);
        ImageBuilder::new(MkfsOptions::default())
            .contents(Contents::open(&source).unwrap())
            .fit(fit)
            .build(&image, &growing)
            .unwrap();
        assert_eq!(*growing.problems.lock().unwrap(), Vec::<String>::new());
        assert_eq!(growing.left.into_inner(), 0, "the files were added");
        let volume = open(&image);
        for n in 1..=more {
            assert_eq!(volume.read(format!("/z/more-{n}")).unwrap(), vec![n as u8; bytes]);
        }
        volume.close().unwrap();
        drop(volume);
        need!(e2fs::e2fsck(&image)).assert_clean();
    }
}

/// The sources of this crate are old enough for their listings to be kept from measuring. Those of
/// a copy are not, and are read again.
#[test]
fn kept_listings_make_the_same_image() {
    let scratch = tempfile::tempdir().unwrap();
    let (source, copy) = (Path::new(env!("CARGO_MANIFEST_DIR")), scratch.path().join("copy"));
    let copied = std::process::Command::new("cp").arg("-a").arg(source).arg(&copy).status();
    assert!(copied.unwrap().success());
    let build = |source: &Path, image: &str| {
        let image = scratch.path().join(image);
        let mut options = MkfsOptions::default();
        (options.uuid, options.clock) = (Some(Default::default()), Some(1000));
        options.extended.hash_seed = Some(Default::default());
        // Labels may depend on the place.
        ImageBuilder::new(options)
            .contents(Contents::open(source).unwrap())
            .xattrs(false)
            .build(&image, &())
            .unwrap();
        image
    };
    let (one, other) = (build(source, "one.img"), build(&copy, "other.img"));
    assert!(fs::read(&one).unwrap() == fs::read(&other).unwrap());
    let volume = open(&one);
    let text = volume.read("/tests/builder.rs").unwrap();
    assert_eq!(text, fs::read(source.join("tests/builder.rs")).unwrap());
    volume.close().unwrap();
    drop(volume);
    need!(e2fs::e2fsck(&one)).assert_clean();
}

#[test]
fn a_source_that_grows_for_ever_is_given_up() {
    let scratch = tempfile::tempdir().unwrap();
    let (source, image) = (scratch.path().join("tree"), scratch.path().join("disk.img"));
    wide_tree(&source, 24);
    let growing = Growing::new(&source.join("z"), u64::MAX, 1 << 18);
    let failed = ImageBuilder::new(MkfsOptions::default())
        .contents(Contents::open(&source).unwrap())
        .fit(Fit::new(Free::Bytes(0)))
        .build(&image, &growing);
    assert!(matches!(failed, Err(BuildError::Incomplete { failures: 1 })), "{failed:?}");
    let problems = growing.problems.into_inner().unwrap();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("no space left"), "{problems:?}");
    assert!(!image.exists());
}

#[test]
fn an_image_is_untouched_if_its_contents_cannot_be_measured() {
    let scratch = tempfile::tempdir().unwrap();
    let (source, image) = (scratch.path().join("tree"), scratch.path().join("disk.img"));
    tree(&source);
    // Block maps of 1 KiB blocks end at 16 GiB.
    fs::File::create(source.join("huge")).unwrap().set_len(64 << 30).unwrap();
    let mut options = MkfsOptions::default();
    (options.fs_type, options.block_size) = (FsType::Ext2, Some(1024));
    for exists in [false, true] {
        if exists {
            fs::write(&image, "old").unwrap();
        }
        let events = Events::default();
        let failed = ImageBuilder::new(options.clone())
            .contents(Contents::open(&source).unwrap())
            .fit(Fit::default())
            .build(&image, &events);
        assert!(matches!(failed, Err(BuildError::Incomplete { failures: 1 })), "{failed:?}");
        let problems = events.problems.into_inner().unwrap();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("huge"), "{problems:?}");
        assert_eq!(image.exists(), exists);
    }
    assert_eq!(fs::read(&image).unwrap(), b"old");
}
