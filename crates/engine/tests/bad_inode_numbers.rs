//! Invalid inode numbers in names, among orphans and in attributes. Every operation on them fails
//! with an error that names the directory, and does not change the inode.

mod common;

use common::Image;
use nextent::check::{CheckOptions, check};
use nextent::inodes::{Access, InodeNo, Inodes, NewNode, ROOT_INO, RenameMode};
use nextent::{Cred, Error, ErrorPolicy, OpenOptions, Result};
use nextent_device::{BlockDevice, MemoryDevice};
use nextent_sync::{Arc, thread};
use nextent_testkit::{Skip, e2fs, need};

const KIND: &[&str] = &["-t", "ext4", "-b", "1024", "-O", "orphan_file"];

fn open(device: &Arc<MemoryDevice>) -> Inodes {
    let options = OpenOptions::new().errors(ErrorPolicy::Continue);
    Inodes::open(device.clone(), &options).unwrap()
}

fn debugfs(image: &Image, commands: &[&str]) {
    e2fs::debugfs(&image.path(), true, commands).unwrap();
}

/// An image with `/d`, `/d/e`, `/other`, `/file`, changed by `debugfs`.
fn image(args: &[&str], commands: &[&str]) -> std::result::Result<Image, Skip> {
    let image = Image::make(16 << 20, args)?;
    let volume = image.open();
    let root = Cred::root();
    let dir = volume.mkdir(&root, ROOT_INO, b"d", 0o755).unwrap().ino;
    volume.mkdir(&root, dir, b"e", 0o755).unwrap();
    volume.mkdir(&root, ROOT_INO, b"other", 0o755).unwrap();
    let file = volume.mknod(&root, ROOT_INO, b"file", NewNode::Regular, 0o644).unwrap().ino;
    volume.write(&root, file, 0, &[7; 3000]).unwrap();
    volume.mknod(&root, ROOT_INO, b"value", NewNode::Regular, 0o644).unwrap();
    volume.close().unwrap();
    drop(volume);
    debugfs(&image, commands);
    Ok(image)
}

/// Repairs the image by e2fsck, and checks that the journal is not damaged.
fn repair(image: &Image, device: &MemoryDevice) {
    device.save(&image.path()).unwrap();
    let text = e2fs::e2fsck(&image.path()).unwrap().text;
    assert!(!text.to_lowercase().contains("journal"), "{text}");
    e2fs::run("e2fsck", [std::ffi::OsStr::new("-fy"), image.path().as_os_str()]).unwrap();
    e2fs::assert_clean(&image.path());
}

fn refused<T: std::fmt::Debug>(what: &str, done: Result<T>) {
    match done {
        Err(Error::Corrupt(cause)) => {
            let text = cause.to_string();
            assert!(text.contains("inode"), "{what}: {text}");
        }
        done => panic!("{what}: {done:?}"),
    }
}

/// Runs every operation on the invalid name `x` in the directory `dir`.
fn run_all_operations(args: &[&str], commands: &[&str], dir: &str) {
    let image = need!(image(args, commands));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = open(&device);
    let root = Cred::root();
    let at = volume.resolve(&root, dir.as_bytes(), false).unwrap().ino;
    let free = volume.statfs().unwrap();
    let x = &b"x"[..];
    refused("lookup", volume.lookup(&root, at, x));
    refused("unlink", volume.unlink(&root, at, x));
    refused("rmdir", volume.rmdir(&root, at, x));
    for mode in [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange] {
        refused("rename it", volume.rename(&root, (at, x), (ROOT_INO, b"file"), mode));
        refused("rename to it", volume.rename(&root, (ROOT_INO, b"file"), (at, x), mode));
        refused("a directory", volume.rename(&root, (ROOT_INO, b"other"), (at, x), mode));
    }
    let file = volume.lookup(&root, ROOT_INO, b"file").unwrap().ino;
    assert!(matches!(volume.link(&root, file, at, x), Err(Error::Exists)));
    assert!(matches!(volume.mkdir(&root, at, x, 0o755), Err(Error::Exists)));
    let mut names = Vec::new();
    volume
        .readdir(at, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            true
        })
        .unwrap();
    assert!(names.iter().any(|name| name == x), "a listing does not show the invalid name");
    let now = volume.statfs().unwrap();
    assert_eq!((free.blocks_free, free.files_free), (now.blocks_free, now.files_free));
    assert!(volume.superblock().error_count.get() > 0, "the damage is not recorded");
    // The failed operations left no directory locked.
    volume.mknod(&root, at, b"new", NewNode::Regular, 0o644).unwrap();
    volume.unlink(&root, at, b"new").unwrap();
    volume.close().unwrap();
    drop(volume);
    repair(&image, &device);
}

#[test]
fn names_of_the_root() {
    run_all_operations(KIND, &["ln <2> x"], "/");
    run_all_operations(KIND, &["ln <2> d/x"], "/d");
}

#[test]
fn names_of_the_directory_itself() {
    run_all_operations(KIND, &["ln d d/x"], "/d");
}

#[test]
fn names_of_reserved_inodes() {
    for ino in [1, 3, 7, 8, 10] {
        run_all_operations(KIND, &[&format!("ln <{ino}> x")], "/");
    }
    run_all_operations(KIND, &["ln <8> d/x"], "/d");
}

#[test]
fn names_of_the_orphan_file() {
    // mke2fs makes it the first inode after lost+found.
    run_all_operations(KIND, &["ln <12> x"], "/");
}

#[test]
fn names_of_free_inodes() {
    run_all_operations(KIND, &["ln <100> x"], "/");
    // Beyond the initialised part of the table.
    let lazy = ["-t", "ext4", "-b", "1024", "-E", "lazy_itable_init=1", "-N", "2000"];
    run_all_operations(&lazy, &["ln <900> x"], "/d/..");
}

#[test]
fn names_of_attribute_values() {
    run_all_operations(KIND, &["sif value flags 0x280000", "ln value x"], "/");
}

/// The uninitialised part of the inode table has old inodes. A lookup finds none of them, and
/// leaves nothing in memory that a later create writes.
#[test]
fn uninitialised_inodes_are_not_found() {
    let args = ["-t", "ext4", "-b", "4096", "-N", "1024", "-E", "lazy_itable_init=1"];
    let image = need!(Image::make(16 << 20, &args));
    // mke2fs clears the table of a group that it uses, and sets a flag.
    debugfs(&image, &["set_bg 0 flags 0", "set_bg 0 checksum calc"]);
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let imap = e2fs::debugfs(&image.path(), false, &["imap <2>"]).unwrap();
    let block = imap.split("at block ").nth(1).unwrap().split(',').next().unwrap();
    let block: u64 = block.parse().unwrap();
    let mut root = [0; 256];
    device.read_at(block * 4096 + 256, &mut root).unwrap();
    for n in 256..1024u64 {
        device.write_at(block * 4096 + n * 256, &root).unwrap();
    }
    let volume = open(&device);
    for n in 257..=1024 {
        let found = volume.getattr(InodeNo(n));
        assert!(matches!(found, Err(Error::NotFound)), "{n}: {found:?}");
    }
    for n in 0..300 {
        let name = format!("file{n}");
        volume.mknod(&Cred::root(), ROOT_INO, name.as_bytes(), NewNode::Regular, 0o644).unwrap();
    }
    // A thread of another slot leases other numbers, which initialises the table up to them.
    let other = || volume.mknod(&Cred::root(), ROOT_INO, b"other", NewNode::Regular, 0o644);
    thread::scope(|scope| scope.spawn(other).join().unwrap().unwrap());
    volume.close().unwrap();
    drop(volume);
    device.save(&image.path()).unwrap();
    e2fs::assert_clean(&image.path());
}

/// Two directories name a third. Operations by the name in the wrong parent fail.
#[test]
fn a_directory_with_two_names() {
    let image = need!(image(KIND, &["ln d/e other/x"]));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = open(&device);
    let root = Cred::root();
    let other = volume.lookup(&root, ROOT_INO, b"other").unwrap().ino;
    refused("rmdir", volume.rmdir(&root, other, b"x"));
    let to = (ROOT_INO, &b"y"[..]);
    refused("rename", volume.rename(&root, (other, b"x"), to, RenameMode::Replace));
    let from = (ROOT_INO, &b"d"[..]);
    refused("over", volume.rename(&root, from, (other, b"x"), RenameMode::Exchange));
    volume.close().unwrap();
    drop(volume);
    repair(&image, &device);
}

/// The `..` of two directories name each other. A search for an ancestor must end.
#[test]
fn a_circle_of_parents() {
    let mut ino = [0; 2];
    let first = need!(image(KIND, &[]));
    {
        let volume = first.open();
        for (ino, path) in ino.iter_mut().zip(["/d", "/d/e"]) {
            *ino = volume.resolve(&Cred::root(), path.as_bytes(), false).unwrap().ino.0;
        }
        volume.close().unwrap();
    }
    let parent = format!("ln <{}> d/..", ino[1]);
    let image = need!(image(KIND, &["unlink d/..", &parent]));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = open(&device);
    let root = Cred::root();
    let from = (ROOT_INO, &b"other"[..]);
    let done = volume.rename(&root, from, (InodeNo(ino[1]), b"new"), RenameMode::Replace);
    assert!(matches!(done, Err(Error::Corrupt(_))), "{done:?}");
    assert!(volume.lookup(&root, InodeNo(ino[0]), b"..").is_ok());
    volume.close().unwrap();
}

/// An orphan file that lists the journal, the root and a linked file.
#[test]
fn invalid_entries_of_the_orphan_file() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "orphan_file,^metadata_csum"];
    let image = need!(image(&args, &["sif <8> links_count 0", "feature orphan_present"]));
    let found = e2fs::debugfs(&image.path(), false, &["blocks <12>"]).unwrap();
    let block: u64 = found.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let numbers: Vec<u8> = [8u32, 2, 12, 7, 100].iter().flat_map(|n| n.to_le_bytes()).collect();
    device.write_at(block * 1024, &numbers).unwrap();
    let report = check(device.clone(), &CheckOptions::default(), &|_| ()).unwrap();
    let wrong =
        report.problems.iter().filter(|problem| problem.to_string().contains("which cannot"));
    assert_eq!(wrong.count(), 4, "the journal, the root, the file itself, a reserved one");
    let volume = open(&device);
    assert_eq!(volume.recovery().orphans, 0);
    assert!(volume.open_file(&Cred::root(), ROOT_INO, Access::READ).is_ok());
    volume.release(ROOT_INO).unwrap();
    volume.close().unwrap();
    drop(volume);
    device.save(&image.path()).unwrap();
    debugfs(&image, &["sif <8> links_count 1"]);
    e2fs::assert_clean(&image.path());
}

/// An invalid head of the list of orphans: the open does not change that inode, and ends the list.
#[test]
fn an_invalid_head_of_the_orphan_list() {
    for ino in [8, 12, 2, 1 << 30] {
        let head = format!("ssv last_orphan {ino}");
        let image = need!(image(KIND, &["sif <8> links_count 0", &head]));
        let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
        let volume = open(&device);
        assert_eq!(volume.recovery().orphans, 0, "{ino}");
        assert!(volume.superblock().error_count.get() > 0, "{ino}: the damage is not recorded");
        volume.mkdir(&Cred::root(), ROOT_INO, b"new", 0o755).unwrap();
        volume.close().unwrap();
        drop(volume);
        device.save(&image.path()).unwrap();
        debugfs(&image, &["sif <8> links_count 1"]);
        e2fs::run("e2fsck", [std::ffi::OsStr::new("-fy"), image.path().as_os_str()]).unwrap();
        e2fs::assert_clean(&image.path());
    }
}

/// A second name that the link count does not include. After the first name is removed and the file
/// freed, the second name is damage, also if it was looked up before.
#[test]
fn a_second_name_of_a_freed_file() {
    let image = need!(image(KIND, &["link /file /other/second"]));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = open(&device);
    let root = Cred::root();
    let file = volume.lookup(&root, ROOT_INO, b"file").unwrap().ino;
    // The directory does not change, so its lookups stay cached.
    let other = volume.lookup(&root, ROOT_INO, b"other").unwrap().ino;
    for _ in 0..2 {
        assert_eq!(volume.lookup(&root, other, b"second").unwrap().ino, file);
    }
    volume.unlink(&root, ROOT_INO, b"file").unwrap();
    for _ in 0..2 {
        refused("lookup", volume.lookup(&root, other, b"second"));
        assert!(matches!(volume.pin(file), Err(Error::NotFound)));
    }
    volume.close().unwrap();
    repair(&image, &device);
}
