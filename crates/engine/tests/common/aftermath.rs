//! What a volume says and leaves behind after a fault.

use super::VolumeFs;
use nextent::inodes::{Inodes, ROOT_INO};
use nextent::{Cred, Error, OpenOptions};
use nextent_device::{BlockDevice, MemoryDevice};
use nextent_ondisk::Superblock;
use nextent_sync::Arc;
use nextent_testkit::{PosixFs, e2fs};
use std::path::Path;

/// What fsync and sync reported as done: a file and its bytes.
pub type Promises = Vec<(String, Vec<u8>)>;

/// What a volume whose journal stopped says to everyone.
pub fn check_aborted(volume: &Inodes, what: &str) {
    let root = Cred::root();
    let changes = [
        volume.mkdir(&root, ROOT_INO, b"more", 0o755).map(drop),
        volume.unlink(&root, ROOT_INO, b"kept0"),
        volume.sync(),
    ];
    let texts: Vec<String> = changes
        .into_iter()
        .map(|change| match change {
            Err(error @ Error::Aborted(_)) => error.to_string(),
            other => panic!("{what}: after the journal stopped: {other:?}"),
        })
        .collect();
    assert!(texts.iter().all(|text| *text == texts[0]), "{what}: {texts:?}");
    assert!(texts[0].contains("failed"), "{what}: {texts:?}");
    assert!(volume.is_read_only(), "{what}");
    assert!(volume.lookup(&root, ROOT_INO, b"lost+found").is_ok(), "{what}: reading goes on");
}

pub fn errors_noted(device: &MemoryDevice) -> u32 {
    let mut sb = [0; 1024];
    device.read_at(1024, &mut sb).unwrap();
    Superblock::read(&sb).unwrap().error_count.get()
}

fn check_promises(volume: &Inodes, promises: &Promises, what: &str) {
    for (name, data) in promises {
        let held = VolumeFs(volume).read(name, 0, data.len() + 1);
        assert!(held.as_ref() == Ok(data), "{what}: {name} was promised");
    }
}

fn recover_by_e2fsck(path: &Path, what: &str) {
    let Ok(mut report) = e2fs::e2fsck_recover(path) else { return };
    if report.text.contains("orphan_present is set but orphan file is clean") {
        // e2fsck leaves that bit behind when it finds nothing but an empty log to recover.
        e2fs::debugfs(path, true, &["feature -orphan_present"]).unwrap();
        report = e2fs::e2fsck(path).unwrap();
    }
    assert!(report.is_clean(), "{what}: recovered by e2fsck: {report:?}");
}

/// Recovers what is left on the device, by us and by e2fsck.
pub fn check_left(left: MemoryDevice, promises: &Promises, what: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let left = Arc::new(left);
    left.save(&path).unwrap();
    recover_by_e2fsck(&path, what);
    let volume = Inodes::open(left.clone(), &OpenOptions::default())
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    check_promises(&volume, promises, what);
    volume.close().unwrap();
    left.save(&path).unwrap();
    if let Ok(report) = e2fs::e2fsck(&path) {
        assert!(report.is_clean(), "{what}: recovered by us: {report:?}");
    }
}
