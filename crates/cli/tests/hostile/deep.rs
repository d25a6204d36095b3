//! A sound tree of 20,000 levels, and directories of very many names.

use crate::run::{nextent, works};
use nextent::inodes::{InodeNo, Inodes, ROOT_INO};
use nextent::{Cred, OpenOptions};
use nextent_device::{FileDevice, FileOptions};
use nextent_testkit::e2fs;
use std::path::Path;
use std::sync::Arc;

const LEVELS: usize = 20_000;
/// Names of the wide directory.
const NAMES: usize = 100_000;

fn open(image: &Path) -> Inodes {
    let device = FileDevice::open(image, &FileOptions::new()).expect("it was made by mkfs");
    Inodes::open(Arc::new(device), &OpenOptions::default()).expect("as above")
}

/// `d.img` with directories `d` in each other, and a file `f` in each hundredth. Its deepest
/// directory.
fn make_deep(dir: &Path) -> InodeNo {
    works(dir, &["mkfs", "-q", "-b", "1024", "-N", "24000", "d.img", "96m"]);
    let volume = open(&dir.join("d.img"));
    let root = Cred::root();
    let mut at = ROOT_INO;
    for level in 0..LEVELS {
        at = volume.mkdir(&root, at, b"d", 0o755).expect("there is space").ino;
        if level % 100 == 0 {
            let file = volume.create(&root, at, b"f", 0o644).expect("as above");
            volume.write(&root, file.ino, 0, b"contents").expect("as above");
            volume.release(file.ino).expect("it is open");
        }
    }
    volume.close().expect("the image can be written");
    at
}

/// Removes a tree, in less memory than other walks may have.
fn removed(dir: &Path, path: &str) {
    let ended = works(dir, &["rm", "-r", path]);
    assert!(ended.peak <= 100 << 10, "rm -r {path}: had {} KiB", ended.peak);
}

#[test]
fn a_deep_tree_is_walked_in_bounded_memory() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    let path = dir.path();
    make_deep(path);
    let image = path.join("d.img");
    e2fs::assert_clean(&image);
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

/// A move below itself asks about each directory on the way to the root.
#[test]
fn a_directory_is_not_moved_to_its_own_depths() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    let deepest = make_deep(dir.path());
    let volume = open(&dir.path().join("d.img"));
    let root = Cred::root();
    let moved = volume.rename(
        &root,
        (ROOT_INO, b"d"),
        (deepest, b"below"),
        nextent::inodes::RenameMode::Replace,
    );
    assert!(matches!(moved, Err(nextent::Error::Invalid)), "{moved:?}");
    volume.close().expect("the image can be written");
    e2fs::assert_clean(&dir.path().join("d.img"));
}

#[test]
fn a_wide_directory_is_walked_in_bounded_memory() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    let path = dir.path();
    make_wide(path);
    let image = path.join("d.img");
    e2fs::assert_clean(&image);
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

/// `d.img` with a directory of [`NAMES`] names.
fn make_wide(dir: &Path) {
    works(dir, &["mkfs", "-q", "-b", "4096", "-N", "20000", "d.img", "192m"]);
    let volume = open(&dir.join("d.img"));
    let root = Cred::root();
    let wide = volume.mkdir(&root, ROOT_INO, b"w", 0o755).expect("there is space").ino;
    let mut file = None;
    for n in 0..NAMES {
        let name = format!("name {n:0>60}");
        // Few inodes with many names each: their number is not what this is about.
        let name = name.as_bytes();
        match file.filter(|_| n % 20 != 0) {
            Some(ino) => drop(volume.link(&root, ino, wide, name).expect("there is space")),
            None => {
                let attr = volume.create(&root, wide, name, 0o644).expect("as above");
                volume.release(attr.ino).expect("it is open");
                file = Some(attr.ino);
            }
        }
    }
    volume.close().expect("the image can be written");
}
