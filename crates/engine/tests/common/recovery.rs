//! Checks of a volume whose journal has stopped, and of its recovery.

use super::{VolumeFs, VolumeTree};
use nextent::inodes::{Inodes, ROOT_INO};
use nextent::{Cred, Error, OpenOptions};
use nextent_device::{BlockDevice, MemoryDevice};
use nextent_ondisk::Superblock;
use nextent_sync::Arc;
use nextent_testkit::tree::walk;
use nextent_testkit::{CutInfo, PosixFs, check_changes, check_promises, e2fs};
use std::path::Path;

/// The files whose fsync or sync has succeeded: path and contents.
pub type DurableFiles = Vec<(String, Vec<u8>)>;

/// Checks that every change fails with the same error after the journal has stopped, and that
/// reads work.
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
    assert!(volume.lookup(&root, ROOT_INO, b"lost+found").is_ok(), "{what}: reads fail");
}

/// The number of errors in the superblock on the device.
pub fn error_count(device: &MemoryDevice) -> u32 {
    let mut sb = [0; 1024];
    device.read_at(1024, &mut sb).unwrap();
    Superblock::read(&sb).unwrap().error_count.get()
}

fn check_durable(volume: &Inodes, durable: &DurableFiles, what: &str) {
    for (name, data) in durable {
        let held = VolumeFs(volume).read(name, 0, data.len() + 1);
        assert!(held.as_ref() == Ok(data), "{what}: {name} was durable");
    }
}

fn recover_by_e2fsck(path: &Path, what: &str) {
    let Ok(mut report) = e2fs::e2fsck_recover(path) else { return };
    if report.text.contains("orphan_present is set but orphan file is clean") {
        // e2fsck does not clear that bit if the log is empty.
        e2fs::debugfs(path, true, &["feature -orphan_present"]).unwrap();
        report = e2fs::e2fsck(path).unwrap();
    }
    assert!(report.is_clean(), "{what}: recovered by e2fsck: {report:?}");
}

/// Recovers the image by the engine and by e2fsck. Both results must be clean, and the engine's
/// must have the durable files.
pub fn check_recovery(image: MemoryDevice, durable: &DurableFiles, what: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let device = Arc::new(image);
    device.save(&path).unwrap();
    recover_by_e2fsck(&path, what);
    let volume = Inodes::open(device.clone(), &OpenOptions::default())
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    check_durable(&volume, durable, what);
    volume.close().unwrap();
    device.save(&path).unwrap();
    if let Ok(report) = e2fs::e2fsck(&path) {
        assert!(report.is_clean(), "{what}: recovered by the engine: {report:?}");
    }
}

/// Recovers a copy of the crash image by an open; e2fsck must find nothing afterwards. Files were
/// changed in `steps` ways each. An error describes what is wrong.
pub fn check_cut(image: &MemoryDevice, info: &CutInfo, steps: usize) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let device = Arc::new(image.snapshot());
    let volume = Inodes::open(device.clone(), &OpenOptions::default())
        .map_err(|error| format!("open: {error}"))?;
    check_promises(&VolumeFs(&volume), info)?;
    check_changes(&VolumeFs(&volume), info, steps)?;
    walk(&VolumeTree(&volume)).map_err(|error| format!("walk: {error}"))?;
    volume.close().map_err(|error| format!("close: {error}"))?;
    drop(volume);
    let path = dir.path().join("image");
    device.save(&path).map_err(|error| error.to_string())?;
    let report = e2fs::e2fsck(&path).map_err(|skip| skip.to_string())?;
    match report.is_clean() {
        true => Ok(()),
        false => Err(format!("recovered by the engine: {report:?}")),
    }
}
