//! A sound tree of 20,000 levels, and a directory of very many names.

use crate::run::{nextent, works};
use nextent::inodes::{InodeNo, Inodes, ROOT_INO, RenameMode};
use nextent::{Cred, OpenOptions};
use nextent_device::{FileDevice, FileOptions};
use nextent_testkit::e2fs;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const LEVELS: usize = 20_000;
/// Names of the wide directory.
const NAMES: usize = 100_000;

/// Block size, inodes and size of the volumes.
const DEEP: (&str, &str, &str) = ("1024", "24000", "96m");
const WIDE: (&str, &str, &str) = ("4096", "20000", "192m");

fn open(image: &Path) -> Inodes {
    let device = FileDevice::open(image, &FileOptions::new()).expect("it was made by mkfs");
    Inodes::open(Arc::new(device), &OpenOptions::default()).expect("mkfs made it")
}

/// A directory with the volume `d.img`, which `fill` fills as root; and its result.
fn with_volume<R>(
    (block, inodes, size): (&str, &str, &str),
    fill: impl FnOnce(&Inodes, &Cred) -> R,
) -> (TempDir, R) {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    works(dir.path(), &["mkfs", "-q", "-b", block, "-N", inodes, "d.img", size]);
    let volume = open(&dir.path().join("d.img"));
    let result = fill(&volume, &Cred::root());
    volume.close().expect("the image can be written");
    e2fs::assert_clean(&dir.path().join("d.img"));
    (dir, result)
}

/// Makes nested directories `d`, and a file `f` in each hundredth. Returns the deepest directory.
fn make_deep(volume: &Inodes, root: &Cred) -> InodeNo {
    let mut at = ROOT_INO;
    for level in 0..LEVELS {
        at = volume.mkdir(root, at, b"d", 0o755).expect("there is space").ino;
        if level % 100 == 0 {
            let file = volume.create(root, at, b"f", 0o644).expect("there is space");
            volume.write(root, file.ino, 0, b"contents").expect("there is space");
            volume.release(file.ino).expect("it is open");
        }
    }
    at
}

/// Removes a tree, in less memory than the limit of other walks.
fn removed(dir: &Path, path: &str) {
    let ended = works(dir, &["rm", "-r", path]);
    assert!(ended.peak <= 100 << 10, "rm -r {path}: had {} KiB", ended.peak);
}

#[test]
fn a_deep_tree_is_walked_in_bounded_memory() {
    let (dir, _) = with_volume(DEEP, make_deep);
    let (path, image) = (dir.path(), dir.path().join("d.img"));
    works(path, &["tree", "d.img:/d"]);
    works(path, &["tar", "-q", "-c", "d.img:/"]);
    works(path, &["fsck", "-n", "-f", "d.img"]);
    let json = nextent(path, &["tree", "--json", "d.img:/"]);
    assert!(json.code == 1 && json.said.contains("deeper than"), "{}", json.said);
    works(path, &["mkfs", "-q", "-b", "1024", "-N", "24000", "to.img", "96m"]);
    works(path, &["cp", "-q", "-a", "d.img:/d", "to.img:/"]);
    e2fs::assert_clean(&path.join("to.img"));
    works(path, &["chmod", "-R", "g+w", "d.img:/d"]);
    works(path, &["chown", "-R", "7:8", "d.img:/d"]);
    let into = nextent(path, &["cp", "-q", "-r", "d.img:/d", "d.img:/d/d/d"]);
    assert!(into.code == 1 && into.said.contains("into itself"), "{}", into.said);
    removed(path, "d.img:/d");
    e2fs::assert_clean(&image);
    removed(path, "to.img:/d");
    e2fs::assert_clean(&path.join("to.img"));
}

/// Such a move checks each directory up to the root.
#[test]
fn a_directory_cannot_move_below_itself() {
    with_volume(DEEP, |volume, root| {
        let (from, to) = ((ROOT_INO, &b"d"[..]), (make_deep(volume, root), &b"below"[..]));
        let moved = volume.rename(root, from, to, RenameMode::Replace);
        assert!(matches!(moved, Err(nextent::Error::Invalid)), "{moved:?}");
    });
}

#[test]
fn a_wide_directory_is_walked_in_bounded_memory() {
    let (dir, ()) = with_volume(WIDE, make_wide);
    let (path, image) = (dir.path(), dir.path().join("d.img"));
    works(path, &["tree", "d.img:/w"]);
    works(path, &["ls", "-l", "d.img:/w"]);
    works(path, &["tar", "-q", "-c", "d.img:/"]);
    works(path, &["fsck", "-n", "-f", "d.img"]);
    works(path, &["chmod", "-R", "g+w", "d.img:/w"]);
    works(path, &["mkfs", "-q", "-b", "4096", "-N", "20000", "to.img", "192m"]);
    works(path, &["cp", "-q", "-a", "d.img:/w", "to.img:/"]);
    e2fs::assert_clean(&path.join("to.img"));
    removed(path, "d.img:/w");
    e2fs::assert_clean(&image);
}

/// Makes a directory of [`NAMES`] names.
fn make_wide(volume: &Inodes, root: &Cred) {
    let wide = volume.mkdir(root, ROOT_INO, b"w", 0o755).expect("there is space").ino;
    let mut file = None;
    for n in 0..NAMES {
        let name = format!("name {n:0>60}");
        // Few inodes with many names each, since the test is about names.
        let name = name.as_bytes();
        match file.filter(|_| n % 20 != 0) {
            Some(ino) => drop(volume.link(root, ino, wide, name).expect("there is space")),
            None => {
                let attr = volume.create(root, wide, name, 0o644).expect("there is space");
                volume.release(attr.ino).expect("it is open");
                file = Some(attr.ino);
            }
        }
    }
}
