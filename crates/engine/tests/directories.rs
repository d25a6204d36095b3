//! Large directories: growth, churn, and use by Linux.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;

use common::{Image, VolumeTree, close, open};
use nextent::inodes::{InodeNo, Inodes, NewNode, ROOT_INO};
use nextent::{Cred, OpenOptions};
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::thread;
use nextent_testkit::tree::{Compare, HostDir, assert_same, walk};
use nextent_testkit::{Access, KernelMount, Rng, e2fs, need};

fn name(n: u32) -> Vec<u8> {
    let mut name = format!("{n}-").into_bytes();
    let fill = if n.is_multiple_of(3) { 0xe4 } else { b'x' };
    name.resize(name.len() + (n as usize * 37) % 120, fill);
    name
}

fn churn(volume: &Inodes, dir: InodeNo, files: u32, rounds: u32) {
    let root = Cred::root();
    let first = volume.mknod(&root, dir, &name(0), NewNode::Regular, 0o644).unwrap().ino;
    let mut rng = Rng::new(files.into());
    let mut there = BTreeMap::from([(0, ())]);
    for round in 0..rounds {
        let n = rng.below(files.into()) as u32;
        if there.contains_key(&n) && n != 0 {
            volume.unlink(&root, dir, &name(n)).unwrap();
            there.remove(&n);
        } else if n != 0 {
            if round % 4 == 0 {
                volume.link(&root, first, dir, &name(n)).unwrap();
            } else {
                volume.mknod(&root, dir, &name(n), NewNode::Fifo, 0o644).unwrap();
            }
            there.insert(n, ());
        }
    }
    for n in 0..files {
        assert_eq!(volume.lookup(&root, dir, &name(n)).is_ok(), there.contains_key(&n));
    }
}

#[test]
fn linux_and_e2fsck_agree() {
    let kinds: &[&[&str]] = &[
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext4"],
        &["-t", "ext3", "-b", "1024"],
        &["-t", "ext2", "-b", "1024", "-O", "^dir_index"],
    ];
    for args in kinds {
        let image = need!(Image::make(64 << 20, args));
        let volume = image.open();
        let root = Cred::root();
        let dir = volume.mkdir(&root, ROOT_INO, b"dir", 0o755).unwrap().ino;
        churn(&volume, dir, 2500, 5000);
        let gone = volume.mkdir(&root, ROOT_INO, b"gone", 0o755).unwrap().ino;
        for n in 0..500 {
            volume.mknod(&root, gone, &name(n), NewNode::Socket, 0).unwrap();
        }
        assert!(volume.rmdir(&root, ROOT_INO, b"gone").is_err());
        for n in 0..500 {
            volume.unlink(&root, gone, &name(n)).unwrap();
        }
        volume.rmdir(&root, ROOT_INO, b"gone").unwrap();
        let ours = walk(&VolumeTree(&volume)).unwrap();
        close(&volume);
        drop(volume);
        e2fs::assert_clean(&image.path());
        let mount = need!(KernelMount::new(&image.path(), Access::ReadWrite));
        let theirs = walk(&HostDir::new(mount.path())).unwrap();
        assert_same(&ours, &theirs, &Compare::default());
        for n in 0..300 {
            let _ = std::fs::write(mount.join(format!("dir/kernel{n}")), b"");
        }
        mount.unmount();
        e2fs::assert_clean(&image.path());
        let volume = image.open();
        let dir = volume.lookup(&root, ROOT_INO, b"dir").unwrap().ino;
        for n in 0..300 {
            volume.unlink(&root, dir, format!("kernel{n}").as_bytes()).unwrap();
        }
        close(&volume);
        drop(volume);
        e2fs::assert_clean(&image.path());
    }
}

/// Scans the whole directory, a few entries a call. Each name must be there once.
fn scan(volume: &Inodes, dir: InodeNo, step: usize) -> BTreeSet<Vec<u8>> {
    let mut seen = BTreeSet::new();
    let mut cookie = 0;
    loop {
        let mut taken = 0;
        volume
            .readdir(dir, cookie, &mut |entry| {
                if taken == step {
                    return false;
                }
                taken += 1;
                cookie = entry.next;
                assert!(seen.insert(entry.name.to_vec()), "{:?} came twice", entry.name);
                true
            })
            .unwrap();
        if taken == 0 {
            return seen;
        }
    }
}

#[test]
fn scans_return_unchanged_names_exactly_once() {
    let image = need!(Image::make(64 << 20, &["-t", "ext4", "-b", "1024"]));
    let volume = image.open();
    let root = Cred::root();
    let dir = volume.mkdir(&root, ROOT_INO, b"dir", 0o755).unwrap().ino;
    let stays: BTreeSet<_> = (0..200).map(|n| format!("stays {n}").into_bytes()).collect();
    for name in &stays {
        volume.mknod(&root, dir, name, NewNode::Fifo, 0).unwrap();
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..3u32 {
            let (volume, root, done) = (&volume, &root, &done);
            scope.spawn(move || {
                for n in 0..400 {
                    let name = format!("{writer} comes and goes {n}").into_bytes();
                    volume.mknod(root, dir, &name, NewNode::Fifo, 0).unwrap();
                    if n % 3 != 0 {
                        volume.unlink(root, dir, &name).unwrap();
                    }
                }
                done.store(true, Ordering::SeqCst);
            });
        }
        let mut scans = 0;
        while !done.load(Ordering::SeqCst) || scans < 3 {
            let seen = scan(&volume, dir, 11 + scans % 30);
            assert!(stays.is_subset(&seen));
            scans += 1;
        }
    });
    close(&volume);
    drop(volume);
    e2fs::assert_clean(&image.path());
}

#[test]
fn inline_directories_and_files_are_read() {
    let image = need!(Image::make(64 << 20, &["-t", "ext4", "-O", "inline_data"]));
    let mount = need!(KernelMount::new(&image.path(), Access::ReadWrite));
    for n in 0..12 {
        let dir = mount.join(format!("dir{n}"));
        std::fs::create_dir(&dir).unwrap();
        // Sizes from 0, over inline data and its attribute, to a block.
        for file in 0..n * n {
            std::fs::write(dir.join(format!("f{file}")), vec![b'x'; n * file]).unwrap();
        }
        std::fs::create_dir(dir.join("below")).unwrap();
    }
    let theirs = walk(&HostDir::new(mount.path())).unwrap();
    mount.unmount();
    let options = OpenOptions::new().read_only(true);
    let volume = open(&image.path(), &options).unwrap();
    let ours = walk(&VolumeTree(&volume)).unwrap();
    assert_same(&ours, &theirs, &Compare::default());
    let root = Cred::root();
    for n in 0..12 {
        let dir = volume.resolve(&root, format!("/dir{n}").as_bytes(), true).unwrap().ino;
        let below = volume.lookup(&root, dir, b"below").unwrap().ino;
        assert_eq!(volume.lookup(&root, dir, b"..").unwrap().ino, ROOT_INO);
        assert_eq!(volume.lookup(&root, below, b"..").unwrap().ino, dir);
    }
}

#[test]
fn block_sizes_above_the_page_size() {
    for size in ["8192", "65536"] {
        let image = need!(Image::make(256 << 20, &["-t", "ext4", "-b", size]));
        let volume = image.open();
        let root = Cred::root();
        let dir = volume.mkdir(&root, ROOT_INO, b"dir", 0o755).unwrap().ino;
        churn(&volume, dir, 3000, 6000);
        let names = scan(&volume, dir, 100);
        close(&volume);
        drop(volume);
        e2fs::assert_clean(&image.path());
        assert_eq!(scan(&image.open(), dir, 33), names);
    }
}

#[test]
fn directories_indexed_by_e2fsck_have_no_gaps() {
    // mke2fs -d writes directories without an index; e2fsck -D packs and indexes them.
    let tree = tempfile::tempdir().unwrap();
    for n in 0..1500 {
        std::fs::write(tree.path().join(format!("a file with number {n}")), b"").unwrap();
    }
    let source = tree.path().to_str().unwrap();
    let image = need!(Image::make(64 << 20, &["-t", "ext4", "-b", "1024", "-d", source]));
    let root = Cred::root();
    for packed in [false, true] {
        if packed {
            let path = image.path();
            let output = need!(e2fs::run("e2fsck", [OsStr::new("-fyD"), path.as_os_str()]));
            assert!(output.status.code().is_some_and(|code| code < 4));
        }
        let volume = image.open();
        let count = if packed { 1403 } else { 1503 };
        assert_eq!(scan(&volume, ROOT_INO, 19).len(), count);
        for n in 0..400 {
            let name = format!("made later {packed} {n}").into_bytes();
            volume.mknod(&root, ROOT_INO, &name, NewNode::Fifo, 0).unwrap();
        }
        for n in (0..1500).step_by(3) {
            let name = format!("a file with number {n}").into_bytes();
            assert_eq!(volume.unlink(&root, ROOT_INO, &name).is_ok(), !packed);
        }
        close(&volume);
        drop(volume);
        e2fs::assert_clean(&image.path());
    }
}

/// A directory that was removed while it was open has no names, although its blocks have entries.
#[test]
fn an_open_directory_that_was_removed_lists_nothing() {
    for (kind, files) in [(&["-t", "ext4", "-b", "1024"][..], 400), (&["-t", "ext4"], 3)] {
        let image = need!(Image::make(16 << 20, kind));
        let volume = image.open();
        let root = Cred::root();
        let dir = volume.mkdir(&root, ROOT_INO, b"gone", 0o755).unwrap().ino;
        for n in 0..files {
            volume.mknod(&root, dir, &name(n), NewNode::Fifo, 0o644).unwrap();
        }
        let below = volume.mkdir(&root, dir, b"below", 0o755).unwrap().ino;
        volume.open_file(&root, dir, nextent::inodes::Access::READ).unwrap();
        volume.open_file(&root, below, nextent::inodes::Access::READ).unwrap();
        volume.rmdir(&root, dir, b"below").unwrap();
        for n in 0..files {
            volume.unlink(&root, dir, &name(n)).unwrap();
        }
        volume.rmdir(&root, ROOT_INO, b"gone").unwrap();
        for gone in [dir, below] {
            assert_eq!(scan(&volume, gone, 10), BTreeSet::new());
            assert_eq!(volume.lookup(&root, gone, b".").unwrap().ino, gone);
            let missing = |found: nextent::Result<()>| {
                assert!(matches!(found, Err(nextent::Error::NotFound)), "{found:?}");
            };
            missing(volume.lookup(&root, gone, b"..").map(drop));
            missing(volume.lookup(&root, gone, &name(1)).map(drop));
            missing(volume.mkdir(&root, gone, b"new", 0o755).map(drop));
            missing(volume.mknod(&root, gone, b"new", NewNode::Fifo, 0o644).map(drop));
            missing(volume.unlink(&root, gone, &name(1)));
            let to = (gone, &b"new"[..]);
            let mode = nextent::inodes::RenameMode::Replace;
            missing(volume.rename(&root, (ROOT_INO, b"lost+found"), to, mode));
        }
        assert_eq!(volume.superblock().error_count.get(), 0, "nothing is damaged");
        volume.release(below).unwrap();
        volume.release(dir).unwrap();
        close(&volume);
        drop(volume);
        e2fs::assert_clean(&image.path());
    }
}

/// Without the feature `dir_index`, a change of a directory drops its index.
#[test]
fn a_change_without_dir_index_drops_the_index() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"];
    let image = need!(Image::make(16 << 20, &args));
    let (root, regular) = (Cred::root(), NewNode::Regular);
    let names = ["added", "removed", "replaced"];
    {
        let volume = image.open();
        for dir in names {
            let dir = volume.mkdir(&root, ROOT_INO, dir.as_bytes(), 0o755).unwrap().ino;
            for n in 0..200 {
                volume.mknod(&root, dir, &name(n), regular, 0o644).unwrap();
            }
        }
        close(&volume);
    }
    need!(e2fs::run("tune2fs", [OsStr::new("-O^dir_index"), image.path().as_os_str()]).map(drop));
    let volume = image.open();
    let dirs = names.map(|name| volume.lookup(&root, ROOT_INO, name.as_bytes()).unwrap().ino);
    for n in 300..330 {
        volume.mknod(&root, dirs[0], &name(n), regular, 0o644).unwrap();
    }
    volume.unlink(&root, dirs[1], &name(7)).unwrap();
    let (from, to) = ((dirs[2], &name(3)[..]), (dirs[2], &name(4)[..]));
    volume.rename(&root, from, to, nextent::inodes::RenameMode::Replace).unwrap();
    assert_eq!(dirs.map(|dir| scan(&volume, dir, 50).len() - 2), [230, 199, 199]);
    close(&volume);
    drop(volume);
    e2fs::assert_clean(&image.path());
}
