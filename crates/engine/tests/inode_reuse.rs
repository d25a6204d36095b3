//! A directory reuses the inode number of a file, and a file that of the directory, while other
//! threads use the old file. Their calls must not change the directory.

mod common;

use common::{Image, KINDS};
use nextent::inodes::{FallocateMode, InodeNo, Inodes, NewNode, ROOT_INO};
use nextent::{Cred, Error, OpenOptions};
use nextent_device::MemoryDevice;
use nextent_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use nextent_sync::{Arc, thread};
use nextent_testkit::{e2fs, need};

/// Makes a file, removes it, and makes a directory that reuses its number.
fn reuse_number(volume: &Inodes, number: &AtomicU32) {
    let root = Cred::root();
    for turn in 0..100 {
        let file = volume.mknod(&root, ROOT_INO, b"one", NewNode::Regular, 0o644).unwrap();
        number.store(file.ino.0, Ordering::Relaxed);
        thread::yield_now();
        volume.unlink(&root, ROOT_INO, b"one").unwrap();
        let dir = volume.mkdir(&root, ROOT_INO, b"one", 0o755).unwrap();
        for name in 0..turn % 4 {
            let name = format!("child{name}");
            volume.mknod(&root, dir.ino, name.as_bytes(), NewNode::Regular, 0o644).unwrap();
            volume.unlink(&root, dir.ino, name.as_bytes()).unwrap();
        }
        if turn % 10 < 9 {
            volume.rmdir(&root, ROOT_INO, b"one").unwrap();
        } else {
            let kept = format!("kept{turn}");
            let flags = nextent::inodes::RenameMode::Replace;
            let to = (ROOT_INO, kept.as_bytes());
            volume.rename(&root, (ROOT_INO, b"one"), to, flags).unwrap();
        }
    }
}

/// Stops the other threads when it is dropped, so that a panic stops them, too.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn calls_to_a_removed_file_do_not_change_the_directory_that_reuses_its_number() {
    let image = need!(Image::make(16 << 20, KINDS[2].1));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
    let (number, done) = (AtomicU32::new(12), AtomicBool::new(false));
    thread::scope(|scope| {
        for n in 0..3u64 {
            let (volume, number, done) = (&volume, &number, &done);
            scope.spawn(move || {
                let root = Cred::root();
                while !done.load(Ordering::Relaxed) {
                    let ino = InodeNo(number.load(Ordering::Relaxed));
                    // Most calls fail, because the file exists only for a short time.
                    let mode = FallocateMode::Allocate;
                    let _ = match n {
                        0 => volume.fallocate(&root, ino, mode, 0, 1642),
                        1 => volume.write(&root, ino, 0, &[7; 3000]).map(|_| ()),
                        _ => volume.append(&root, ino, &[8; 700]).map(|_| ()),
                    };
                }
            });
        }
        let _done = StopOnDrop(&done);
        reuse_number(&volume, &number);
    });
    volume.close().unwrap();
    drop(volume);
    device.save(&image.path()).unwrap();
    e2fs::assert_clean(&image.path());
}

/// Calls by number find a directory complete, or not at all, while another thread makes and removes
/// it.
#[test]
fn calls_by_number_find_no_incomplete_directory() {
    let image = need!(Image::make(16 << 20, KINDS[2].1));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
    let root = Cred::root();
    let first = volume.mkdir(&root, ROOT_INO, b"one", 0o755).unwrap().ino;
    volume.rmdir(&root, ROOT_INO, b"one").unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for n in 0..3 {
            let (volume, root, done) = (&volume, &root, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let found = match n {
                        0 => volume.lookup(root, first, b"none").map(|_| ()),
                        1 => volume.lookup(root, first, b"..").map(|_| ()),
                        _ => {
                            let mut names = 0;
                            volume
                                .readdir(first, 0, &mut |_| {
                                    names += 1;
                                    true
                                })
                                .map(|()| assert!([0, 2].contains(&names), "{names} names"))
                        }
                    };
                    match found {
                        Ok(()) | Err(Error::NotFound | Error::NotDir) => {}
                        Err(error) => panic!("an error on a valid volume: {error}"),
                    }
                }
            });
        }
        let _done = StopOnDrop(&done);
        for _ in 0..3000 {
            assert_eq!(volume.mkdir(&root, ROOT_INO, b"one", 0o755).unwrap().ino, first);
            volume.rmdir(&root, ROOT_INO, b"one").unwrap();
        }
    });
    assert_eq!(volume.superblock().error_count.get(), 0);
    volume.close().unwrap();
    drop(volume);
    device.save(&image.path()).unwrap();
    e2fs::assert_clean(&image.path());
}
