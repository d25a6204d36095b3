//! Helpers of the tests of direct transfers.

use std::ops::Range;

use nextent::inodes::{Access, FileExtent, Inodes, OpenFile, ROOT_INO, Wait};
use nextent::{Cred, Error, OpenOptions};
use nextent_device::{MemoryDevice, Recording};
use nextent_sync::{Arc, Duration};
use nextent_testkit::{CutInfo, Explorer, e2fs};

use super::{Image, close};

pub const BLOCK: u64 = 4096;
/// The byte of all unallocated blocks. A reader must never get it.
pub const STALE: u8 = 0xdb;

/// A configuration of the engine under test.
#[derive(Clone, Debug)]
pub struct Variant {
    pub name: String,
    pub options: OpenOptions,
    /// Whether direct writes to parts of written blocks hold the file shared.
    pub shares_parts: bool,
}

impl Variant {
    /// The product's engine.
    pub fn engine() -> Self {
        Self { name: "engine".to_owned(), options: OpenOptions::new(), shares_parts: true }
    }
}

pub fn opened(device: &Arc<MemoryDevice>) -> Inodes {
    opened_with(device, &Variant::engine())
}

pub fn opened_with(device: &Arc<MemoryDevice>, variant: &Variant) -> Inodes {
    let options = variant.options.clone().commit_interval(Duration::from_secs(1));
    Inodes::open(device.clone(), &options).unwrap()
}

pub fn finish(image: &Image, device: &MemoryDevice, volume: Inodes) {
    close(&volume);
    drop(volume);
    device.save(&image.path()).unwrap();
    e2fs::assert_clean(&image.path());
}

pub fn file<'v>(volume: &'v Inodes, name: &[u8]) -> OpenFile<'v> {
    volume.create_file(&Cred::root(), ROOT_INO, name, 0o644).unwrap()
}

pub fn extents(volume: &Inodes, file: &OpenFile<'_>) -> Vec<FileExtent> {
    volume.fiemap(file.ino(), 0, u64::MAX, 1000).unwrap()
}

pub fn read(file: &OpenFile<'_>, range: Range<u64>) -> Vec<u8> {
    let mut bytes = vec![1; (range.end - range.start) as usize];
    let got = file.read_direct(range.start, &mut bytes, Wait::Allowed).unwrap();
    bytes.truncate(got);
    bytes
}

/// An image whose free blocks hold [`STALE`].
pub fn stale(
    size: u64,
    args: &[&str],
) -> Result<(Image, Arc<MemoryDevice>), nextent_testkit::Skip> {
    let image = Image::make(size, args)?;
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = opened(&device);
    let filler = file(&volume, b"filler");
    let left = volume.statfs().unwrap().blocks_available * BLOCK;
    let data = vec![STALE; 1 << 20];
    let mut at = 0;
    while at + (1 << 20) < left {
        match filler.write(at, &data) {
            Ok(n) => at += n as u64,
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    drop(filler);
    volume.unlink(&Cred::root(), ROOT_INO, b"filler").unwrap();
    close(&volume);
    drop(volume);
    Ok((image, device))
}

/// Checks that each block of `/file` in a recovered image has its own byte or zeros, and that the
/// blocks that an fsync made durable are written.
pub fn check(image: &MemoryDevice, info: &CutInfo) -> Result<(), String> {
    let device = Arc::new(image.snapshot());
    let volume = Inodes::open(device.clone(), &OpenOptions::default())
        .map_err(|error| format!("open: {error}"))?;
    let root = Cred::root();
    let attr = volume.resolve(&root, b"/file", false).map_err(|error| error.to_string())?;
    let f = volume.file(&root, attr.ino, Access::READ).map_err(|error| error.to_string())?;
    let bytes = read(&f, 0..f.attr().size.next_multiple_of(512));
    for (n, chunk) in bytes.chunks(BLOCK as usize).enumerate() {
        let expected = n as u8 % 7 + 1;
        let bad = chunk.iter().find(|byte| **byte != 0 && **byte != expected);
        if let Some(byte) = bad {
            return Err(format!("block {n} has {byte:#x}"));
        }
        let durable = info.marks.iter().any(|mark| *mark == n as u64 + 1);
        if durable && chunk.iter().any(|byte| *byte != expected) {
            return Err(format!("block {n} was durable"));
        }
    }
    drop(f);
    volume.close().map_err(|error| format!("close: {error}"))?;
    drop(volume);
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = dir.path().join("image");
    device.save(&path).map_err(|error| error.to_string())?;
    let report = e2fs::e2fsck(&path).map_err(|skip| skip.to_string())?;
    if report.is_clean() { Ok(()) } else { Err(format!("{report:?}")) }
}

/// Runs [`check`] on power cuts of a recording from event `from` on, after which `/file` exists.
pub fn check_cuts(recording: &Recording, from: usize) {
    let explorer = Explorer { seed: 5, most: 60, ..Explorer::default() };
    let report =
        explorer.explore(
            recording,
            |image, info| {
                if info.cut < from { Ok(()) } else { check(&image, info) }
            },
        );
    eprintln!("{} of {} images checked", report.checked, report.possible);
    report.assert_none_failed();
}
