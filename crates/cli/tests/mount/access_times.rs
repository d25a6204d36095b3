//! Access times, as the options of mount(8) ask for them.

use crate::support::*;
use nextent_testkit::need;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A kind of file: how it is made, read and changed.
struct Kind {
    name: &'static str,
    make: fn(&Path),
    read: fn(&Path),
    change: fn(&Path),
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "file",
        // Its page is in the kernel's cache from the beginning.
        make: |path| std::fs::write(path, "text").unwrap(),
        read: |path| assert_eq!(std::fs::read(path).unwrap().len(), 4),
        change: |path| std::fs::write(path, "more").unwrap(),
    },
    Kind {
        name: "directory",
        make: |path| std::fs::create_dir(path).unwrap(),
        read: |path| assert!(std::fs::read_dir(path).unwrap().count() < 2),
        change: |path| std::fs::write(path.join("new"), "").unwrap(),
    },
    Kind {
        name: "link",
        make: |path| std::os::unix::fs::symlink("target", path).unwrap(),
        read: |path| assert_eq!(std::fs::read_link(path).unwrap().as_os_str(), "target"),
        change: |path| {
            std::fs::remove_file(path).unwrap();
            std::os::unix::fs::symlink("target", path).unwrap();
        },
    },
];

type Time = (i64, i64);

fn times(path: &Path) -> (Time, Time) {
    let meta = std::fs::symlink_metadata(path).unwrap();
    ((meta.atime(), meta.atime_nsec()), (meta.ctime(), meta.ctime_nsec()))
}

/// Lets the clock of timestamps advance.
fn tick() {
    std::thread::sleep(Duration::from_millis(20));
}

/// Whether a read changes the access time: after the file is made, again, after it is changed, and
/// again.
fn updates(kind: &Kind, path: &Path) -> [bool; 4] {
    let reads = || {
        tick();
        let before = times(path).0;
        (kind.read)(path);
        assert!(times(path).0 >= before);
        times(path).0 != before
    };
    (kind.make)(path);
    let first = [reads(), reads()];
    tick();
    (kind.change)(path);
    [first[0], first[1], reads(), reads()]
}

const EACH: [bool; 4] = [true; 4];
const RELATIVE: [bool; 4] = [true, false, true, false];
const NONE: [bool; 4] = [false; 4];

#[test]
fn access_times_follow_the_options() {
    // The options; what files and links, and what directories do; what /proc/mounts says.
    let rows = [
        ("", RELATIVE, RELATIVE, "relatime"),
        ("relatime,direct_io", RELATIVE, RELATIVE, "relatime"),
        ("strictatime", EACH, EACH, ""),
        ("noatime", NONE, NONE, "noatime"),
        ("nodiratime", RELATIVE, NONE, "nodiratime"),
        ("strictatime,nodiratime", EACH, NONE, "nodiratime"),
        ("lazytime", RELATIVE, RELATIVE, "lazytime"),
        ("noatime,relatime,nodiratime,diratime", RELATIVE, RELATIVE, "relatime"),
    ];
    for (options, files, directories, shown) in rows {
        need!(with_each(&[options], "64m", |mount, _| {
            let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
            let line = mounts.lines().find(|line| line.contains(text(mount.path()))).unwrap();
            let words: Vec<_> = line.split([' ', ',']).collect();
            for word in ["relatime", "noatime", "nodiratime", "lazytime"] {
                let due =
                    word == shown || word == "relatime" && files == RELATIVE && shown != "noatime";
                assert_eq!(words.contains(&word), due, "{options}: {line}");
            }
            for kind in &KINDS {
                let due = if kind.name == "directory" { directories } else { files };
                assert_eq!(updates(kind, &mount.join(kind.name)), due, "{options}: {}", kind.name);
            }
        }));
    }
}

#[test]
fn access_times_are_kept_on_request() {
    let read = |file: &mut File| assert!(file.read(&mut [0; 4]).unwrap() == 4);
    need!(with_each(&["strictatime", ""], "64m", |mount, options| {
        let path = mount.join("file");
        std::fs::write(&path, "text").unwrap();
        let before = times(&path);
        tick();
        let mut how = OpenOptions::new();
        read(&mut how.read(true).custom_flags(libc::O_NOATIME).open(&path).unwrap());
        // Neither reads.
        drop(OpenOptions::new().append(true).open(&path).unwrap());
        assert!(std::fs::metadata(&path).unwrap().is_file());
        assert_eq!(times(&path), before, "{options}");
        let flag = |change| {
            let done = std::process::Command::new("chattr").arg(change).arg(&path).status();
            assert!(done.unwrap().success());
        };
        flag("+A");
        let before = times(&path);
        tick();
        read(&mut File::open(&path).unwrap());
        assert_eq!(times(&path), before, "{options}: chattr +A");
        flag("-A");
        read(&mut File::open(&path).unwrap());
        assert!(times(&path) > before, "{options}");
    }));
}

/// An access time is stored, and a mount for reading only changes none.
#[test]
fn access_times_are_stored() {
    let dir = tempfile::tempdir().unwrap();
    let image = mkfs(dir.path(), "64m");
    let mount = need!(Mount::new(&image, "strictatime"));
    let paths = |mount: &Mount| -> Vec<PathBuf> { KINDS.map(|kind| mount.join(kind.name)).into() };
    let read_all = |mount: &Mount| -> Vec<_> {
        KINDS.iter().for_each(|kind| (kind.read)(&mount.join(kind.name)));
        paths(mount).iter().map(|path| times(path)).collect()
    };
    KINDS.iter().for_each(|kind| (kind.make)(&mount.join(kind.name)));
    tick();
    let last = read_all(&mount);
    assert!(last.iter().all(|(read, changed)| read > changed), "{last:?}");
    mount.unmount();
    for options in ["ro", "ro,strictatime", "noatime"] {
        let mount = Mount::new(&image, options).unwrap();
        assert_eq!(read_all(&mount), last, "{options}");
        mount.unmount();
    }
    nextent_testkit::e2fs::assert_clean(&image);
}
