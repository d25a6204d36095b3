//! Shuttle models of the orphan protocol. Threads add and remove entries of the orphan file and of
//! the list, while commits render them and a thread takes snapshots of the device.
//!
//! Run with `cargo test -p nextent --features model-shuttle --test orphan_models`. In every
//! schedule the recovery of a snapshot leaks nothing: each inode and block that is in use after the
//! recovery belongs to a file with a name.
#![cfg(feature = "model-shuttle")]

use nextent::inodes::{Access, InodeNo, Inodes, NewNode, ROOT_INO, SetAttr};
use nextent::{Cred, OpenOptions};
use nextent_device::BlockDevice;
use nextent_sync::{Arc, Duration, thread};
use nextent_testkit::{ModelDisk, Skip, e2fs};

/// The bytes of a small volume, made once, outside the model.
fn image(features: &str) -> Option<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let size = ["-t", "ext4", "-b", "1024", "-N", "32", "-J", "size=1", "-E", "lazy_itable_init=0"];
    let args = [&size[..], &["-O", features]].concat();
    match e2fs::mke2fs(&path, 2400 << 10, &args) {
        Ok(()) => Some(std::fs::read(&path).unwrap()),
        Err(skip) => {
            Skip::note(&skip);
            None
        }
    }
}

fn open(device: Arc<dyn BlockDevice>) -> Inodes {
    let options = OpenOptions::new().commit_interval(Duration::ZERO);
    Inodes::open(device, &options).unwrap()
}

fn create(volume: &Inodes, name: &[u8]) -> InodeNo {
    let root = Cred::root();
    let ino = volume.mknod(&root, ROOT_INO, name, NewNode::Regular, 0o600).unwrap().ino;
    volume.write(&root, ino, 0, &[7; 3000]).unwrap();
    ino
}

/// Unlinks open files, one of which stays open, and truncates another.
fn work(volume: &Inodes, name: u8) {
    let root = Cred::root();
    for round in 0..2 {
        let path = [name, b'0' + round];
        let ino = create(volume, &path);
        volume.open_file(&root, ino, Access::READ_WRITE).unwrap();
        if round == 0 {
            let set = SetAttr { size: Some(1000), ..SetAttr::default() };
            volume.setattr(&root, ino, &set).unwrap();
        }
        volume.unlink(&root, ROOT_INO, &path).unwrap();
        if round == 0 {
            volume.release(ino).unwrap();
        }
    }
}

/// Free blocks, free inodes and names, after the recovery of a snapshot.
fn recovered(disk: &ModelDisk) -> (u64, u64, u64) {
    let volume = open(Arc::new(disk.snapshot()));
    let mut names = 0;
    volume
        .readdir(ROOT_INO, 0, &mut |entry| {
            names += u64::from(entry.name.len() == 2 && entry.name != b"..");
            true
        })
        .unwrap();
    let stat = volume.statfs().unwrap();
    volume.close().unwrap();
    (stat.blocks_free, stat.files_free, names)
}

fn schedule(bytes: &[u8]) {
    let disk = Arc::new(ModelDisk::with_bytes(bytes.to_vec()));
    let (blocks, inodes, _) = recovered(&disk);
    let volume = Arc::new(open(disk.clone()));
    let threads: Vec<_> = [b'a', b'b']
        .into_iter()
        .map(|name| {
            let volume = volume.clone();
            thread::spawn(move || work(&volume, name))
        })
        .collect();
    let check = || {
        let (free_blocks, free_inodes, names) = recovered(&disk);
        assert_eq!(free_inodes, inodes - names, "{names} names");
        // A file has three blocks; between its operations it has none or one.
        let used = blocks - free_blocks;
        assert!(used <= 3 * names, "{used} blocks, {names} names");
    };
    for _ in 0..2 {
        volume.sync().unwrap();
        check();
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    volume.sync().unwrap();
    check();
    drop(volume);
    let (free_blocks, free_inodes, names) = recovered(&disk);
    assert_eq!((free_blocks, free_inodes, names), (blocks, inodes, 0));
}

#[test]
fn slots_of_the_orphan_file() {
    let Some(bytes) = image("orphan_file") else { return };
    shuttle::check_pct(move || schedule(&bytes), 100, 3);
}

#[test]
fn entries_of_the_list() {
    let Some(bytes) = image("^orphan_file") else { return };
    shuttle::check_pct(move || schedule(&bytes), 100, 3);
}
