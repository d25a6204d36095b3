//! Every operation on volumes with the smallest journal. No handle requests more credits than a
//! transaction has, no estimate is too low, and large operations use several handles.

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;

use common::{Image, close};
use nextent::inodes::{
    Access, FallocateMode, InodeNo, Inodes, NewNode, ROOT_INO, RenameMode, SetAttr, XattrMode,
};
use nextent::{Cred, OpenOptions, Result};
use nextent_testkit::{e2fs, need};

/// MiB and arguments of mke2fs: small groups, the smallest journal for each block size, a
/// fast-commit area, maps of pointers, both kinds of orphans.
const KINDS: &[(u64, &str)] = &[
    (16, "-t ext4 -b 1024 -g 256 -J size=1"),
    (16, "-t ext4 -b 1024 -g 256 -J size=1 -O orphan_file"),
    (16, "-t ext4 -b 1024 -g 512 -G 4 -J size=1 -O fast_commit"),
    (16, "-t ext3 -b 1024 -g 256 -J size=1"),
    (32, "-t ext4 -b 1024 -J size=1 -I 128"),
    (32, "-t ext3 -b 1024 -J size=1"),
    (32, "-t ext4 -b 1024 -J size=1 -O ^extents,^64bit,orphan_file"),
    (32, "-t ext4 -b 2048 -g 256 -J size=2"),
    (48, "-t ext4 -b 4096 -g 512 -J size=4"),
    (600, "-t ext4 -b 65536 -J size=64"),
];

fn root() -> Cred {
    Cred::root()
}

fn name(n: usize) -> Vec<u8> {
    let mut name = format!("{n:06}-").into_bytes();
    name.resize(250, b'x');
    name
}

fn file(volume: &Inodes, name: &[u8]) -> Result<InodeNo> {
    Ok(volume.mknod(&root(), ROOT_INO, name, NewNode::Regular, 0o644)?.ino)
}

fn truncate(volume: &Inodes, ino: InodeNo, size: u64) -> Result<()> {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    volume.setattr(&root(), ino, &set).map(drop)
}

/// Two files with alternating blocks.
fn fragmented(volume: &Inodes, block: u64) -> Result<[InodeNo; 2]> {
    let both = [file(volume, b"one")?, file(volume, b"two")?];
    for at in 0..1200 {
        for ino in both {
            // With holes between, so that no extents merge.
            volume.write(&root(), ino, at * 2 * block, &[7; 100])?;
        }
    }
    Ok(both)
}

fn contents(volume: &Inodes, block: u64) -> Result<()> {
    let root = &root();
    let large = file(volume, b"large")?;
    let piece = vec![1; 1 << 20];
    for at in 0..3 {
        volume.write(root, large, at << 20, &piece)?;
    }
    truncate(volume, large, block + 5)?;
    volume.unlink(root, ROOT_INO, b"large")?;
    // As large as the free space.
    let size = volume.statfs()?.blocks_available * block / 8 * 7;
    let (placed, _) = volume.fill_file(
        root,
        (ROOT_INO, b"placed"),
        &SetAttr { size: Some(size), ..SetAttr::default() },
        std::slice::from_ref(&(0..size)),
    )?;
    volume.open_file(&Cred::root(), placed, Access::READ)?;
    volume.unlink(root, ROOT_INO, b"placed")?;
    volume.release(placed)?;
    let [one, two] = fragmented(volume, block)?;
    let modes = [
        (FallocateMode::PunchHole, 10, 700),
        (FallocateMode::ZeroRange { keep_size: false }, 100, 900),
        (FallocateMode::CollapseRange, 20, 300),
        (FallocateMode::InsertRange, 20, 300),
        (FallocateMode::Allocate, 0, 1000),
        (FallocateMode::KeepSize, 3000, 1000),
    ];
    for (mode, at, len) in modes {
        match volume.fallocate(root, one, mode, at * block, len * block) {
            // Maps of pointers support only holes.
            Ok(()) | Err(nextent::Error::NotSupported) => {}
            Err(error) => return Err(error),
        }
    }
    truncate(volume, one, 500 * block)?;
    truncate(volume, one, 0)?;
    volume.unlink(root, ROOT_INO, b"one")?;
    volume.open_file(&Cred::root(), two, Access::READ)?;
    volume.unlink(root, ROOT_INO, b"two")?;
    volume.release(two)
}

fn names(volume: &Inodes, block: u64) -> Result<()> {
    let root = &root();
    let large = volume.mkdir(root, ROOT_INO, b"large", 0o755)?.ino;
    let ino = file(volume, b"linked")?;
    for value in [100, 500] {
        let value = vec![3; value];
        volume.setxattr(root, ino, b"user.value", &value, XattrMode::Either)?;
    }
    let count = if block < 4096 { 2500 } else { 600 };
    let other = volume.mkdir(root, ROOT_INO, b"other", 0o755)?.ino;
    for n in 0..count {
        let name = name(n);
        match n % 10 {
            0 => volume.link(root, ino, large, &name).map(drop)?,
            1 => volume.mkdir(root, large, &name, 0o755).map(drop)?,
            2 => volume.symlink(root, large, &name, &[b't'; 200]).map(drop)?,
            3 => volume.mknod(root, large, &name, NewNode::Fifo, 0o600).map(drop)?,
            _ => {
                volume.link(root, ino, other, &name)?;
                let (from, to) = ((other, &name[..]), (large, &name[..]));
                volume.rename(root, from, to, RenameMode::Replace)?;
            }
        }
    }
    for n in 0..count {
        let name = name(n);
        match n % 10 {
            1 => volume.rmdir(root, large, &name)?,
            _ => volume.unlink(root, large, &name)?,
        }
    }
    // The removal revokes all its blocks.
    volume.rmdir(root, ROOT_INO, b"large")?;
    volume.rmdir(root, ROOT_INO, b"other")?;
    let left = volume.tmpfile(root, ROOT_INO, 0o600)?.ino;
    volume.release(left)?;
    volume.unlink(root, ROOT_INO, b"linked")
}

/// Leaves orphans to the next open.
fn orphans(image: &Image, block: u64) -> Result<()> {
    let volume = image.open();
    let [one, two] = fragmented(&volume, block)?;
    volume.open_file(&Cred::root(), one, Access::READ)?;
    volume.open_file(&Cred::root(), two, Access::READ)?;
    volume.unlink(&root(), ROOT_INO, b"one")?;
    volume.unlink(&root(), ROOT_INO, b"two")?;
    volume.sync()?;
    drop(volume);
    let volume = image.open();
    close(&volume);
    Ok(())
}

/// Runs all operations on one kind of volume. An error describes what failed.
fn run(image: &Image) -> std::result::Result<(), String> {
    let told = |what: &str| {
        let what = what.to_owned();
        move |error: nextent::Error| format!("{what}: {error}")
    };
    let volume = image.open();
    let block = u64::from(volume.geometry().block_size);
    let free = volume.statfs().map_err(told("counts"))?.blocks_free;
    contents(&volume, block).map_err(told("contents"))?;
    names(&volume, block).map_err(told("names"))?;
    let left = volume.statfs().map_err(told("counts"))?.blocks_free;
    if (free, 0) != (left, volume.credit_overruns()) {
        let over = volume.credit_overruns();
        return Err(format!("{free} blocks were free, now {left}; {over} credits too many"));
    }
    close(&volume);
    drop(volume);
    clean(image)?;
    orphans(image, block).map_err(told("orphans"))?;
    clean(image)
}

fn clean(image: &Image) -> std::result::Result<(), String> {
    match e2fs::e2fsck(&image.path()) {
        Ok(report) if !report.is_clean() => Err(report.text),
        _ => Ok(()),
    }
}

#[test]
fn every_operation_fits_the_smallest_journal() {
    let mut wrong = Vec::new();
    for (size, args) in KINDS {
        let list: Vec<&str> = args.split_whitespace().collect();
        let image = need!(Image::make(size << 20, &list));
        if let Err(error) = run(&image) {
            wrong.push(format!("{args}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// An open refuses a log that is shorter than Linux's minimum, and writes nothing.
#[test]
fn a_shorter_log_is_refused() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum", "-J", "size=1"];
    let image = need!(Image::make(16 << 20, &args));
    let said = need!(e2fs::debugfs(&image.path(), false, &["bmap <8> 0"]));
    let block: u64 = said.lines().find_map(|line| line.trim().parse().ok()).expect(&said);
    let file = File::options().write(true).open(image.path()).expect("the image");
    // Big-endian: the length, and the first block of the log.
    for (length, first) in [(1023u32, 1u32), (1024, 2), (1024, 900)] {
        file.write_all_at(&length.to_be_bytes(), block * 1024 + 16).expect("written");
        file.write_all_at(&first.to_be_bytes(), block * 1024 + 20).expect("written");
        let before = std::fs::read(image.path()).expect("read");
        let opened = common::open(&image.path(), &OpenOptions::default());
        let error = opened.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("a journal of"), "{length} {first}: {error}");
        assert!(before == std::fs::read(image.path()).expect("read"), "nothing was written");
        let reading = OpenOptions::new().read_only(true);
        assert!(common::open(&image.path(), &reading).is_ok());
    }
    file.write_all_at(&1024u32.to_be_bytes(), block * 1024 + 16).expect("written");
    file.write_all_at(&1u32.to_be_bytes(), block * 1024 + 20).expect("written");
    close(&image.open());
    need!(e2fs::e2fsck(&image.path())).assert_clean();
}
