//! Every historical design with the whole file system: compared with the model, by many threads, on
//! a full volume, and with power cuts.

#[path = "../../../crates/engine/tests/common/mod.rs"]
mod common;

use common::{Image, KINDS, VolumeFs, VolumeTree};
use nextent::inodes::{FallocateMode, Inodes, NewNode, ROOT_INO, SetAttr};
use nextent::{Cred, Error};
use nextent_device::{MemoryDevice, RecordingDevice};
use nextent_historical::Design;
use nextent_sync::{Arc, LockKind, thread};
use nextent_testkit::tree::{Compare, assert_same, walk};
use nextent_testkit::{
    CutInfo, Explorer, ModelFs, append_with_promises, check_promises, e2fs, need, run_apart,
    run_together, same_result, sample_ops,
};

/// Every preset but the default. They alternate between searches by order and without, and between
/// locks that sleep and spin.
fn designs(turn: usize) -> Vec<Design> {
    let presets = Design::all().iter().filter(|design| **design != Design::default());
    let variants = presets.enumerate().map(|(i, design)| match design.choices() {
        [] => *design,
        _ => Design::named(&format!("{design}/s{}", (i + turn) % 2)).unwrap(),
    });
    let kinds = [LockKind::Sleep, LockKind::Spin].into_iter().cycle().skip(turn);
    variants.zip(kinds).map(|(design, kind)| design.with_locks(kind)).collect()
}

/// Opens a copy of the image in memory.
fn open(image: &Image, design: Design) -> (Arc<MemoryDevice>, Inodes) {
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = Inodes::open(device.clone(), &design.options()).unwrap();
    (device, volume)
}

fn close(image: &Image, device: &MemoryDevice, volume: Inodes) {
    common::close(&volume);
    drop(volume);
    device.save(&image.path()).unwrap();
    e2fs::assert_clean(&image.path());
}

#[test]
fn every_design_matches_the_model() {
    for (i, design) in designs(0).into_iter().enumerate() {
        eprintln!("design {design}");
        let image = need!(Image::make(48 << 20, KINDS[1].1));
        let (device, volume) = open(&image, design);
        let model = ModelFs::new(u64::from(volume.geometry().block_size));
        for (at, op) in sample_ops(20 + i as u64, 400).iter().enumerate() {
            if let Err(difference) = same_result(op, &model, &VolumeFs(&volume)) {
                panic!("{design}, call {at}, model | volume: {difference}");
            }
        }
        let how = Compare { times: false, root: false, ..Compare::default() };
        assert_same(&walk(&model).unwrap(), &walk(&VolumeTree(&volume)).unwrap(), &how);
        close(&image, &device, volume);
    }
}

#[test]
fn sixteen_threads_in_own_and_shared_directories() {
    for design in designs(1) {
        eprintln!("design {design}");
        let image = need!(Image::make(128 << 20, KINDS[2].1));
        let (device, volume) = open(&image, design);
        let fs = VolumeFs(&volume);
        run_apart(&fs, u64::from(volume.geometry().block_size), 16, 60, 3).unwrap();
        run_together(&fs, 16, 100, 4).unwrap();
        walk(&VolumeTree(&volume)).unwrap();
        close(&image, &device, volume);
    }
}

/// Makes files of all sizes until the volume is full.
fn fill(volume: &Inodes, n: usize) {
    let root = Cred::root();
    for i in 0..1000u32 {
        let name = format!("file-{n}-{i}");
        let made = volume.mknod(&root, ROOT_INO, name.as_bytes(), NewNode::Regular, 0o644);
        let ino = match made {
            Ok(attr) => attr.ino,
            Err(error) if error.is_full_volume() => return,
            Err(error) => panic!("{error}"),
        };
        let len = 5000 * (i as usize % 40 + 1);
        let done = match i % 3 {
            0 => volume.write(&root, ino, 0, &vec![7; len]).map(|_| ()),
            1 => volume.fallocate(&root, ino, FallocateMode::Allocate, 5000, len as u64),
            _ => volume.write(&root, ino, 1 << 21, &vec![9; len]).map(|_| ()),
        };
        match done {
            Ok(()) | Err(Error::NoSpace) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_full_volume_is_valid_and_can_be_emptied() {
    for design in designs(0) {
        eprintln!("design {design}");
        let image = need!(Image::make(16 << 20, &["-t", "ext4", "-b", "1024", "-N", "400"]));
        let (device, volume) = open(&image, design);
        let before = volume.statfs().unwrap();
        thread::scope(|scope| {
            for n in 0..4 {
                let volume = &volume;
                scope.spawn(move || fill(volume, n));
            }
        });
        let full = volume.statfs().unwrap();
        assert!(full.files_free < 40 || full.blocks_available < 200, "{full:?}");
        let root = Cred::root();
        let tree = walk(&VolumeTree(&volume)).unwrap();
        for entry in tree.entries.iter().filter(|entry| entry.path.starts_with(b"/file-")) {
            volume.unlink(&root, ROOT_INO, &entry.path[1..]).unwrap();
        }
        volume.sync().unwrap();
        let after = volume.statfs().unwrap();
        // The root directory keeps its new blocks.
        let grown = before.blocks_free - after.blocks_free;
        assert!(grown < 100, "{design}: {before:?}, {after:?}");
        assert_eq!(after.files_free, before.files_free);
        close(&image, &device, volume);
    }
}

/// Extends a file by steps of 8 KiB to 1 MiB and truncates it, 25 times.
fn churn(volume: &Inodes, n: usize) {
    let root = Cred::root();
    let name = format!("file-{n}");
    let file = volume.mknod(&root, ROOT_INO, name.as_bytes(), NewNode::Regular, 0o644).unwrap();
    let empty = SetAttr { size: Some(0), ..SetAttr::default() };
    for _ in 0..25 {
        for step in 0..128 {
            let mode = FallocateMode::Allocate;
            volume.fallocate(&root, file.ino, mode, step * 8192, 8192).unwrap();
        }
        volume.setattr(&root, file.ino, &empty).unwrap();
    }
}

#[test]
fn a_volume_is_not_full_while_freed_blocks_wait_for_a_commit() {
    for design in designs(0) {
        eprintln!("design {design}");
        let image = need!(Image::make(24 << 20, KINDS[1].1));
        let (device, volume) = open(&image, design);
        thread::scope(|scope| {
            for n in 0..4 {
                let volume = &volume;
                scope.spawn(move || churn(volume, n));
            }
        });
        close(&image, &device, volume);
    }
}

/// Recovers `image` with `design`. An error describes what is wrong.
fn check(image: &MemoryDevice, info: &CutInfo, design: Design) -> Result<(), String> {
    let device = Arc::new(image.snapshot());
    let volume = Inodes::open(device.clone(), &design.options())
        .map_err(|error| format!("open: {error}"))?;
    check_promises(&VolumeFs(&volume), info)?;
    walk(&VolumeTree(&volume)).map_err(|error| format!("walk: {error}"))?;
    volume.close().map_err(|error| format!("close: {error}"))?;
    drop(volume);
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = dir.path().join("image");
    device.save(&path).map_err(|error| error.to_string())?;
    let report = e2fs::e2fsck(&path).map_err(|skip| skip.to_string())?;
    if report.is_clean() { Ok(()) } else { Err(format!("{report:?}")) }
}

#[test]
fn power_cuts() {
    for (i, design) in designs(1).into_iter().enumerate() {
        let image = need!(Image::make(16 << 20, KINDS[2].1));
        let base = MemoryDevice::load(&image.path()).unwrap();
        let device = Arc::new(RecordingDevice::new(base));
        let volume = Inodes::open(device.clone(), &design.options()).unwrap();
        let fs = VolumeFs(&volume);
        let seed = 70 + i as u64;
        thread::scope(|scope| {
            let (fs, device) = (&fs, &device);
            scope.spawn(move || append_with_promises(fs, device, 0, 8, 3000).unwrap());
            run_together(fs, 2, 40, seed).unwrap();
        });
        common::close(&volume);
        let explorer = Explorer { seed, most: 16, ..Explorer::default() };
        let report =
            explorer.explore(&device.recording(), |image, info| check(&image, info, design));
        eprintln!("design {design}: {} of {} images", report.checked, report.possible);
        report.assert_none_failed();
    }
}
