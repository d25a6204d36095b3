//! Permission checks without the file's lock, while other threads set and remove access lists. The
//! lists' blocks become directories and other files' lists meanwhile. No check may report damage or
//! use another file's list.

mod common;

use common::{Image, close};
use nextent::inodes::{Access, InodeNo, Inodes, NewNode, ROOT_INO, XattrMode};
use nextent::{Cred, Error, OpenOptions};
use nextent_device::MemoryDevice;
use nextent_ondisk::acl::{Acl, AclEntry, Tag};
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{Arc, thread};
use nextent_testkit::{e2fs, need};

const LIST: &[u8] = b"system.posix_acl_access";

/// An access list that gives `perm` to user 1000 and nothing to others.
fn list(perm: u16) -> Vec<u8> {
    let entries = [
        (Tag::UserObj, 6),
        (Tag::User(1000), perm),
        (Tag::GroupObj, 0),
        (Tag::Mask, 7),
        (Tag::Other, 0),
    ];
    let entries = entries.into_iter().map(|(tag, perm)| AclEntry { tag, perm }).collect();
    Acl { entries }.to_xattr()
}

fn file(volume: &Inodes, name: &[u8]) -> InodeNo {
    volume.mknod(&Cred::root(), ROOT_INO, name, NewNode::Regular, 0o660).unwrap().ino
}

/// Sets a list on the file, removes it, and makes a directory that may get its block.
fn set_and_remove(volume: &Inodes, ino: InodeNo, perm: u16, name: &[u8]) {
    let root = Cred::root();
    volume.setxattr(&root, ino, LIST, &list(perm), XattrMode::Either).unwrap();
    volume.removexattr(&root, ino, LIST).unwrap();
    volume.sync().unwrap();
    volume.mkdir(&root, ROOT_INO, name, 0o755).unwrap();
    volume.rmdir(&root, ROOT_INO, name).unwrap();
    volume.sync().unwrap();
}

fn check_beside_changes(args: &[&str]) {
    let image = need!(Image::make(16 << 20, args));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
    let (denied, granted) = (file(&volume, b"denied"), file(&volume, b"granted"));
    let user = Cred::user(1000, 1000, Vec::new(), 0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for n in 0..8 {
            let (volume, user, done) = (&volume, &user, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let ino = if n % 4 == 3 { granted } else { denied };
                    match volume.access(user, ino, Access::READ) {
                        Err(Error::Access) => {}
                        Ok(()) if ino == granted => {}
                        Ok(()) => panic!("granted by another file's list"),
                        Err(error) => panic!("an error on a valid volume: {error}"),
                    }
                }
            });
        }
        let _stop = StopOnDrop(&done);
        let other = scope.spawn(|| {
            for _ in 0..300 {
                set_and_remove(&volume, granted, 7, b"one");
            }
        });
        for _ in 0..300 {
            set_and_remove(&volume, denied, 0, b"two");
        }
        other.join().unwrap();
    });
    assert!(!volume.is_read_only());
    assert_eq!(volume.superblock().error_count.get(), 0);
    close(&volume);
    drop(volume);
    device.save(&image.path()).unwrap();
    e2fs::assert_clean(&image.path());
}

/// Stops the other threads when it is dropped, so that a panic stops them, too.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn lists_in_blocks_without_a_journal() {
    check_beside_changes(&[
        "-t",
        "ext4",
        "-I",
        "128",
        "-b",
        "1024",
        "-O",
        "^has_journal,^metadata_csum",
    ]);
}

#[test]
fn lists_in_blocks_with_a_journal() {
    check_beside_changes(&["-t", "ext4", "-I", "128", "-b", "1024", "-e", "remount-ro"]);
}

#[test]
fn lists_in_inodes() {
    check_beside_changes(&["-t", "ext4", "-I", "256", "-b", "1024"]);
}
