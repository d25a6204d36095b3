//! Opening with a backup of the superblock, as `mount -o sb=` of Linux does it for reading.

mod common;

use common::{Image, VolumeFs, VolumeTree, close};
use nextent::OpenOptions;
use nextent::inodes::Inodes;
use nextent_device::MemoryDevice;
use nextent_sync::Arc;
use nextent_testkit::tree::{Compare, HostDir, Tree, assert_same, walk};
use nextent_testkit::{Access, KernelMount, PosixFs, Skip, e2fs, need};

/// Arguments of mke2fs, megabytes, bytes of a block, and a place of a backup in units of 1 KiB.
type Case = (&'static [&'static str], u64, usize, u64);

const CASES: [Case; 5] = [
    (&["-t", "ext4", "-b", "1024"], 40, 1024, 8193),
    (&["-t", "ext4", "-b", "1024"], 40, 1024, 24577),
    (&["-t", "ext4", "-b", "4096"], 300, 4096, 131_072),
    (&["-t", "ext3", "-b", "4096"], 300, 4096, 131_072),
    (&["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"], 40, 1024, 8193),
];

/// An image with a tree, closed, or as a crash leaves it: then what was synced is only in the
/// journal.
fn used((args, megabytes, ..): Case, crash: bool) -> Result<(Image, Tree), Skip> {
    let image = Image::make(megabytes << 20, args)?;
    let volume = common::open(&image.path(), &OpenOptions::default()).unwrap();
    let fs = VolumeFs(&volume);
    fs.mkdir("/dir", 0o755).unwrap();
    for n in 0..50 {
        let path = format!("/dir/file{n}");
        fs.create(&path, 0o644).unwrap();
        fs.write(&path, 0, format!("{n}").repeat(n * 100).as_bytes()).unwrap();
    }
    volume.sync().unwrap();
    let tree = walk(&VolumeTree(&volume)).unwrap();
    if !crash {
        close(&volume);
    }
    drop(volume);
    Ok((image, tree))
}

/// Overwrites the superblock and the group descriptors behind it.
fn damage(image: &Image, (args, _, block_size, _): Case) {
    let mut bytes = std::fs::read(image.path()).unwrap();
    // With meta_bg the descriptors behind the superblock are no others than those that are used.
    let end = if args.contains(&"meta_bg,^resize_inode") { 2048 } else { 2 * block_size };
    bytes[1024..end.max(2048 + block_size - 1024)].fill(0);
    std::fs::write(image.path(), bytes).unwrap();
}

fn with_backup(block: u64) -> OpenOptions {
    OpenOptions::new().superblock(block)
}

#[test]
fn a_damaged_superblock_is_replaced_by_a_backup() {
    for case in CASES {
        let (args, _, block_size, block) = case;
        let (image, tree) = need!(used(case, false));
        damage(&image, case);
        let before = std::fs::read(image.path()).unwrap();
        assert!(common::open(&image.path(), &OpenOptions::default()).is_err());
        for read_only in [false, true] {
            let options = with_backup(block).read_only(read_only);
            let volume = common::open(&image.path(), &options).unwrap();
            assert_same(&tree, &walk(&VolumeTree(&volume)).unwrap(), &Compare::default());
            let why = volume.read_only_reason().unwrap();
            assert!(read_only || why.contains("backup of the superblock"), "{why}");
            assert_eq!(VolumeFs(&volume).create("/new", 0o644), Err(libc::EROFS));
            close(&volume);
        }
        assert!(before == std::fs::read(image.path()).unwrap(), "{args:?}: it is unchanged");
        let mount = need!(KernelMount::with_options(
            &image.path(),
            Access::ReadOnly,
            &format!("sb={block}")
        ));
        let theirs = walk(&HostDir::new(mount.path())).unwrap();
        mount.unmount();
        assert_same(&tree, &theirs, &Compare::default());
        let number = (block * 1024 / block_size as u64).to_string();
        let size = block_size.to_string();
        let path = image.path();
        let args = ["-fy", "-b", &number, "-B", &size, path.to_str().unwrap()];
        need!(e2fs::run("e2fsck", args));
        e2fs::assert_clean(&image.path());
        let volume = image.open();
        assert_same(&tree, &walk(&VolumeTree(&volume)).unwrap(), &Compare::default());
        close(&volume);
    }
}

/// A backup does not say that the journal must be replayed.
#[test]
fn the_journal_is_replayed_in_memory() {
    for case in CASES {
        let (image, tree) = need!(used(case, true));
        damage(&image, case);
        let before = std::fs::read(image.path()).unwrap();
        let volume = common::open(&image.path(), &with_backup(case.3)).unwrap();
        assert_same(&tree, &walk(&VolumeTree(&volume)).unwrap(), &Compare::default());
        close(&volume);
        assert!(before == std::fs::read(image.path()).unwrap());
    }
}

#[test]
fn places_without_a_backup_are_named() {
    let case = CASES[0];
    let (image, _) = need!(used(case, false));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let fails = |block: u64| {
        let error = Inodes::open(device.clone(), &with_backup(block)).unwrap_err();
        error.to_string()
    };
    for block in [2, 8192, 8194, 16385] {
        let text = fails(block);
        assert!(text.contains(&format!("block {block} (of 1 KiB) holds no backup")), "{text}");
    }
    for block in [40 << 10, u64::MAX / 1024, u64::MAX] {
        assert!(fails(block).contains("behind the end"), "{block}");
    }
    // The superblock itself, which can be written.
    let volume = Inodes::open(device.clone(), &with_backup(1)).unwrap();
    assert!(!volume.is_read_only());
    close(&volume);
    // A copy of a backup elsewhere is none.
    let mut bytes = std::fs::read(image.path()).unwrap();
    bytes.copy_within(8193 << 10..8194 << 10, 12_000 << 10);
    bytes[(24_577 << 10) + 0x78] ^= 1;
    std::fs::write(image.path(), bytes).unwrap();
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    for (block, text) in [(12_000, "holds no backup"), (24_577, "checksum")] {
        let error = Inodes::open(device.clone(), &with_backup(block)).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
}
