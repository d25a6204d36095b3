//! Damaged images, and the calls that are tried on them.
//!
//! The base images have no checksums, so that the engine reads damaged blocks instead of refusing
//! them. Each call must return, with any result; the text of an error must be one line.
#![allow(dead_code, unreachable_pub)] // each user needs a part of it

use crate::common::VolumeFs;
use nextent::inodes::{Attr, InodeNo, Inodes, ROOT_INO, SeekKind, SetAttr};
use nextent::{Cred, OpenOptions};
use nextent_device::{BlockDevice, MemoryDevice, RecordingDevice};
use nextent_sync::{Arc, Duration};
use nextent_testkit::{PosixFs, Rng, Skip, XattrFlags, e2fs, perform, sample_ops};
use std::collections::HashSet;

/// A valid image, and the blocks to damage.
pub struct BaseImage {
    pub image: MemoryDevice,
    /// Offsets of blocks: directories, extent nodes, inodes, journal, others.
    pub blocks: Vec<u64>,
    pub block_size: u64,
}

/// The part of the image to damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All blocks that are not empty.
    Anything,
    /// The superblock and the blocks after it: descriptors, bitmaps, inodes.
    Head,
    /// Blocks of directories, linear and indexed.
    Directories,
    /// Inodes and nodes of block maps.
    Maps,
    /// The journal, while it needs recovery.
    Journal,
}

const IMAGE_BYTES: u64 = 8 << 20;

/// Opens for writing, with commits only on request or under pressure.
fn open(device: Arc<dyn BlockDevice>) -> nextent::Result<Inodes> {
    let options = OpenOptions::new().commit_interval(Duration::ZERO);
    Inodes::open(device, &options)
}

/// Images with small blocks and without checksums.
pub const KINDS: [(&str, &[&str]); 3] = [
    ("ext4", &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^64bit,^resize_inode"]),
    ("ext3", &["-t", "ext3", "-b", "1024", "-I", "128"]),
    ("ext2", &["-t", "ext2", "-b", "1024"]),
];

/// An image made by mke2fs with `args`, with files of every kind.
pub fn base(args: &[&str], part: Part) -> Result<BaseImage, Skip> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("base");
    e2fs::mke2fs(&path, IMAGE_BYTES, args)?;
    let empty = MemoryDevice::load(&path).unwrap();
    let device = Arc::new(RecordingDevice::new(empty));
    let volume = open(device.clone()).unwrap_or_else(|error| panic!("{error}"));
    populate(&VolumeFs(&volume));
    volume.sync().unwrap();
    let block_size = u64::from(volume.geometry().block_size);
    // A snapshot before the log is emptied needs recovery.
    let crashed = device.image_at(device.events());
    let blocks = blocks(&volume, &crashed, part, block_size);
    volume.close().unwrap();
    drop(volume);
    let closed = device.inner().snapshot();
    let image = if part == Part::Journal { crashed } else { closed };
    assert!(!blocks.is_empty(), "no blocks of {part:?}");
    Ok(BaseImage { image, blocks, block_size })
}

fn populate(fs: &VolumeFs<'_>) {
    fs.mkdir("/big", 0o755).unwrap();
    for n in 0..300 {
        fs.create(&format!("/big/entry-number-{n}"), 0o644).unwrap();
    }
    fs.create("/holes", 0o644).unwrap();
    for n in 0..60 {
        fs.write("/holes", n * 20_000, b"some data").unwrap();
    }
    fs.symlink(&"target/".repeat(30), "/long-link").unwrap();
    fs.symlink("big", "/short-link").unwrap();
    let value = vec![7; 300];
    fs.set_xattr("/holes", "user.large", &value, XattrFlags::Any).unwrap();
    for op in sample_ops(5, 80) {
        let _ = perform(&op, fs);
    }
}

/// Offsets of the blocks of a part.
fn blocks(volume: &Inodes, image: &MemoryDevice, part: Part, block: u64) -> Vec<u64> {
    let bytes = image.to_bytes();
    let chunks = || bytes.chunks(block as usize).zip((0..).step_by(block as usize));
    let used = |chunk: &[u8]| chunk.iter().any(|&byte| byte != 0);
    match part {
        Part::Anything => chunks().filter(|(c, _)| used(c)).map(|(_, at)| at).collect(),
        Part::Head => chunks().filter(|(c, _)| used(c)).map(|(_, at)| at).take(40).collect(),
        Part::Directories => {
            let dirs = ["/", "/big", "/d"]
                .map(|path| volume.resolve(&Cred::root(), path.as_bytes(), true));
            dirs.into_iter().flatten().flat_map(|attr| blocks_of(volume, &attr, block)).collect()
        }
        // An extent node begins with its magic number; the head has the inodes.
        Part::Maps => {
            let nodes = chunks().filter(|(c, _)| c.starts_with(&[0x0a, 0xf3])).map(|(_, at)| at);
            nodes
                .chain(chunks().filter(|(c, _)| used(c)).map(|(_, at)| at).skip(3).take(30))
                .collect()
        }
        // Every block of the log begins with jbd2's magic number or follows one.
        Part::Journal => {
            let heads: Vec<u64> = chunks()
                .filter(|(c, _)| c.starts_with(&[0xc0, 0x3b, 0x39, 0x98]))
                .map(|(_, at)| at)
                .collect();
            heads
        }
    }
}

fn blocks_of(volume: &Inodes, attr: &Attr, block: u64) -> Vec<u64> {
    let extents = volume.fiemap(attr.ino, 0, attr.size, 1000).unwrap_or_default();
    extents
        .iter()
        .flat_map(|extent| (extent.physical..extent.physical + extent.len).step_by(block as usize))
        .collect()
}

impl BaseImage {
    /// The image with a few changed words, which depend only on the seed.
    pub fn damaged(&self, seed: u64) -> MemoryDevice {
        let mut rng = Rng::new(seed);
        let image = self.image.snapshot();
        for _ in 0..1 + rng.below(4) {
            let place = *rng.pick(&self.blocks);
            // Most structures are at the start of a block.
            let reach = *rng.pick(&[64, 256, self.block_size]);
            let at = (place + rng.below(reach.min(self.block_size))).min(image.size() - 8);
            let len = *rng.pick(&[1, 1, 2, 2, 4, 4, 8]);
            let value: u64 = match rng.below(6) {
                0 => 0,
                1 => u64::MAX,
                2 => rng.below(300),
                3 => 0u64.wrapping_sub(1 + rng.below(16)),
                4 => 1 << rng.below(64),
                _ => rng.bits(),
            };
            image.write_at(at, &value.to_le_bytes()[..len]).unwrap();
        }
        image
    }

    /// The image with changes that a fuzzer chose, eight bytes for each: two for the block, two for
    /// the offset in it, four for the value.
    pub fn patched(&self, data: &[u8]) -> MemoryDevice {
        let image = self.image.snapshot();
        for patch in data.chunks_exact(8).take(64) {
            let word = |at: usize| u64::from(u16::from_le_bytes([patch[at], patch[at + 1]]));
            let place = self.blocks[word(0) as usize % self.blocks.len()];
            let at = (place + word(2) % self.block_size).min(image.size() - 4);
            image.write_at(at, &patch[4..8]).unwrap();
        }
        image
    }
}

/// Runs all calls on copies of an image; they must return.
pub fn exercise(image: &MemoryDevice) {
    for no_recovery in [true, false] {
        let options = OpenOptions::new().read_only(true).no_recovery(no_recovery);
        match Inodes::open(Arc::new(image.snapshot()), &options) {
            Ok(volume) => drop(read_all(&volume, image.size())),
            Err(error) => assert_one_line(&error.to_string()),
        }
    }
    match open(Arc::new(image.snapshot())) {
        Ok(volume) => change_all(&volume, image.size()),
        Err(error) => assert_one_line(&error.to_string()),
    }
}

fn assert_one_line(text: &str) {
    assert!(!text.is_empty() && !text.contains('\n'), "not one line: {text:?}");
}

/// Visits every inode that has a name, once, and reads its data and attributes.
fn read_all(volume: &Inodes, size: u64) -> Vec<(InodeNo, Vec<u8>, InodeNo)> {
    let root = Cred::root();
    let (mut seen, mut waiting) = (HashSet::from([ROOT_INO]), vec![ROOT_INO]);
    let mut names = Vec::new();
    let mut buf = vec![0; 65536];
    while let Some(ino) = waiting.pop() {
        let attr = volume.getattr(ino);
        let mut entries = 0;
        let _ = volume.readdir(ino, 0, &mut |entry| {
            entries += 1;
            // The image's size bounds the entries of a directory.
            assert!(entries <= size / 8, "an endless directory");
            names.push((ino, entry.name.to_vec(), entry.ino));
            if seen.insert(entry.ino) {
                waiting.push(entry.ino);
            }
            true
        });
        let _ = volume.readlink(ino);
        let _ = volume.read(ino, 0, &mut buf);
        let _ = volume.fiemap(ino, 0, u64::MAX / 2, 10_000);
        let _ = volume.seek(ino, 0, SeekKind::Data);
        let _ = volume.seek(ino, 0, SeekKind::Hole);
        if let Ok(attr) = attr {
            let _ = volume.read(ino, attr.size.saturating_sub(5000), &mut buf);
        }
        for name in volume.listxattr(&root, ino).unwrap_or_default() {
            let _ = volume.getxattr(&root, ino, &name);
        }
    }
    let _ = volume.statfs();
    names
}

/// Changes all files and adds new ones.
fn change_all(volume: &Inodes, size: u64) {
    let root = Cred::root();
    for (n, (dir, name, ino)) in read_all(volume, size).into_iter().enumerate() {
        match n % 5 {
            0 => drop(volume.unlink(&root, dir, &name)),
            1 => drop(volume.write(&root, ino, 5000, &[1; 3000])),
            2 => {
                let set = SetAttr { size: Some(100), ..SetAttr::default() };
                let _ = volume.setattr(&root, ino, &set);
            }
            3 => drop(volume.lookup(&root, dir, &name)),
            _ => drop(volume.rmdir(&root, dir, &name)),
        }
    }
    for op in sample_ops(77, 60) {
        let _ = perform(&op, &VolumeFs(volume));
    }
    let _ = volume.sync();
    let _ = volume.close();
}

/// Limit of the time for one damaged image, with a margin for slow machines.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);
