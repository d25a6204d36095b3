//! Calls at and beyond the last byte that a file's map can have. Each returns the result of Linux's
//! ext4 and changes nothing else.

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::{Image, VolumeFs, close};
use nextent::inodes::{FallocateMode, InodeNo, Inodes, NewNode, ROOT_INO, SeekKind, Wait};
use nextent::{Cred, Error};
use nextent_testkit::{Access, HostFs, KernelMount, PosixFs, Skip, e2fs, need};
use rustix::fs::{OFlags, SeekFrom};

/// Kinds of images, and Linux 6.18's largest file size on each.
const KINDS: &[(&str, &[&str], u64)] = &[
    ("extents", &["-t", "ext4", "-b", "4096"], 0xffff_ffff << 12),
    ("extents, 1 KiB", &["-t", "ext4", "-b", "1024"], 0xffff_ffff << 10),
    ("extents, ^huge_file", &["-t", "ext4", "-b", "4096", "-O", "^huge_file"], 0x1fff_ffff << 12),
    ("pointers", &["-t", "ext3", "-b", "4096"], 0x1ff7_fdfe << 12),
    ("pointers, 1 KiB", &["-t", "ext3", "-b", "1024"], 0x101_010c << 10),
    (
        "pointers, huge_file",
        &["-t", "ext4", "-b", "4096", "-O", "^extents,^64bit"],
        0x4010_040c << 12,
    ),
    (
        "pointers, huge_file, 1 KiB",
        &["-t", "ext4", "-b", "1024", "-O", "^extents,^64bit"],
        0x101_010c << 10,
    ),
];

const MAX: u64 = i64::MAX as u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileCall {
    Write,
    WriteDirect,
    Read,
    ReadDirect,
    Truncate,
    Allocate { keep: bool },
    Punch,
    Zero { keep: bool },
    Collapse,
    Insert,
    SeekData,
    SeekHole,
}

const CALLS: &[FileCall] = &[
    FileCall::Write,
    FileCall::WriteDirect,
    FileCall::Read,
    FileCall::ReadDirect,
    FileCall::Truncate,
    FileCall::Allocate { keep: false },
    FileCall::Allocate { keep: true },
    FileCall::Punch,
    FileCall::Zero { keep: false },
    FileCall::Zero { keep: true },
    FileCall::Collapse,
    FileCall::Insert,
    FileCall::SeekData,
    FileCall::SeekHole,
];

/// An implementation under comparison: the result of a call, and its effect on one file.
trait Implementation {
    fn call(&self, name: &str, call: FileCall, offset: u64, len: u64) -> Result<u64, i32>;
    fn size(&self, name: &str) -> u64;
    fn posix(&self) -> &dyn PosixFs;
}

struct Engine<'v>(&'v Inodes, VolumeFs<'v>);
struct Linux(PathBuf, HostFs);

/// Calls `of` with page-aligned memory for a direct transfer.
fn aligned(len: u64, of: impl FnOnce(&mut [u8]) -> Result<u64, i32>) -> Result<u64, i32> {
    let mut memory = vec![0x5a; len as usize + 4096];
    let start = memory.as_ptr().align_offset(4096);
    of(&mut memory[start..start + len as usize])
}

impl Engine<'_> {
    fn ino(&self, name: &str) -> InodeNo {
        self.0.lookup(&Cred::root(), ROOT_INO, name.as_bytes()).unwrap().ino
    }
}

impl Implementation for Engine<'_> {
    fn call(&self, name: &str, call: FileCall, offset: u64, len: u64) -> Result<u64, i32> {
        let (ino, root, volume) = (self.ino(name), Cred::root(), self.0);
        let change = |mode| volume.fallocate(&root, ino, mode, offset, len).map(|()| 0);
        let done = match call {
            FileCall::Write => {
                volume.write(&root, ino, offset, &vec![0x5a; len as usize]).map(|n| n as u64)
            }
            FileCall::WriteDirect => {
                let wait = Wait::Allowed;
                let data = vec![0x5a; len as usize];
                volume.write_direct(&root, ino, offset, &data, wait).map(|n| n as u64)
            }
            FileCall::Read => {
                volume.read(ino, offset, &mut vec![0; len as usize]).map(|n| n as u64)
            }
            FileCall::ReadDirect => {
                let wait = Wait::Allowed;
                let mut data = vec![0; len as usize];
                volume.read_direct(ino, offset, &mut data, wait).map(|n| n as u64)
            }
            FileCall::Truncate => return self.1.truncate(name, offset).map(|()| 0),
            FileCall::Allocate { keep: false } => change(FallocateMode::Allocate),
            FileCall::Allocate { keep: true } => change(FallocateMode::KeepSize),
            FileCall::Punch => change(FallocateMode::PunchHole),
            FileCall::Zero { keep } => change(FallocateMode::ZeroRange { keep_size: keep }),
            FileCall::Collapse => change(FallocateMode::CollapseRange),
            FileCall::Insert => change(FallocateMode::InsertRange),
            FileCall::SeekData => volume.seek(ino, offset, SeekKind::Data),
            FileCall::SeekHole => volume.seek(ino, offset, SeekKind::Hole),
        };
        done.map_err(|error| match error {
            Error::NoData => libc::ENXIO,
            error => common::errno(error),
        })
    }

    fn size(&self, name: &str) -> u64 {
        self.0.getattr(self.ino(name)).unwrap().size
    }

    fn posix(&self) -> &dyn PosixFs {
        &self.1
    }
}

impl Linux {
    fn new(mount: &Path) -> Self {
        Self(mount.into(), HostFs::new(mount))
    }

    fn open(&self, name: &str, flags: OFlags) -> File {
        rustix::fs::open(self.0.join(name), OFlags::RDWR | flags, 0.into()).unwrap().into()
    }
}

impl Implementation for Linux {
    fn call(&self, name: &str, call: FileCall, offset: u64, len: u64) -> Result<u64, i32> {
        let posix = &self.1;
        let io = |done: std::io::Result<usize>| {
            done.map(|n| n as u64).map_err(|error| error.raw_os_error().unwrap())
        };
        let seek = |from| {
            let found = rustix::fs::seek(self.open(name, OFlags::empty()), from);
            found.map_err(rustix::io::Errno::raw_os_error)
        };
        match call {
            FileCall::Write => {
                let file = self.open(name, OFlags::empty());
                io(file.write_at(&vec![0x5a; len as usize], offset))
            }
            FileCall::WriteDirect => {
                let file = self.open(name, OFlags::DIRECT);
                aligned(len, |data| io(file.write_at(data, offset)))
            }
            FileCall::Read => {
                let file = self.open(name, OFlags::empty());
                io(file.read_at(&mut vec![0; len as usize], offset))
            }
            FileCall::ReadDirect => {
                let file = self.open(name, OFlags::DIRECT);
                aligned(len, |data| io(file.read_at(data, offset)))
            }
            FileCall::Truncate => posix.truncate(name, offset).map(|()| 0),
            FileCall::Allocate { keep } => posix.allocate(name, offset, len, keep).map(|()| 0),
            FileCall::Punch => posix.punch(name, offset, len).map(|()| 0),
            FileCall::Zero { keep } => posix.zero(name, offset, len, keep).map(|()| 0),
            FileCall::Collapse => posix.collapse(name, offset, len).map(|()| 0),
            FileCall::Insert => posix.insert(name, offset, len).map(|()| 0),
            FileCall::SeekData => seek(SeekFrom::Data(offset)),
            FileCall::SeekHole => seek(SeekFrom::Hole(offset)),
        }
    }

    fn size(&self, name: &str) -> u64 {
        std::fs::metadata(self.0.join(name)).unwrap().len()
    }

    fn posix(&self) -> &dyn PosixFs {
        &self.1
    }
}

/// The contents at the start of each file.
fn pattern(block: u64) -> Vec<u8> {
    (0..4 * block).map(|n| (n % 251 + 1) as u8).collect()
}

/// The largest file size that `side` accepts.
fn largest(side: &dyn Implementation) -> u64 {
    side.posix().create("/largest", 0o644).unwrap();
    let (mut low, mut high) = (0, MAX);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match side.call("largest", FileCall::Truncate, middle, 0) {
            Ok(_) => low = middle,
            Err(errno) => {
                assert_eq!(errno, libc::EFBIG, "size {middle:#x}");
                high = middle - 1;
            }
        }
    }
    side.posix().unlink("/largest").unwrap();
    low
}

/// Arguments of the calls, near the limits of files, of extents and of signed numbers.
fn ranges(block: u64, limit: u64, call: FileCall) -> Vec<(u64, u64)> {
    let extents = block << 32;
    let mut offsets = vec![0, block, extents + block, 2 * extents, 5 * extents + 3 * block];
    for edge in [limit, extents, (MAX / block) * block] {
        offsets.extend([edge - 2 * block, edge - block, edge]);
        offsets.extend([edge - 100, edge - block - 100]);
    }
    offsets.extend([limit + 1, limit + block, MAX - 1]);
    offsets.retain(|offset| *offset < MAX);
    offsets.sort_unstable();
    offsets.dedup();
    let moves = matches!(
        call,
        FileCall::Write | FileCall::WriteDirect | FileCall::Read | FileCall::ReadDirect
    );
    let takes = matches!(call, FileCall::Allocate { .. } | FileCall::Zero { .. });
    let mut ranges = Vec::new();
    for offset in offsets {
        let mut lens = vec![1, block, 2 * block, 2 * block + 100];
        if !moves {
            lens.extend([extents, limit.saturating_sub(offset), MAX - offset]);
        }
        // Not those that would fill the volume.
        lens.retain(|len| !takes || *len < 16 << 20 || offset.saturating_add(*len) > extents);
        // Not those that end past the largest signed number, which the system call refuses;
        // `unsigned_numbers_do_not_wrap` has them.
        lens.retain(|len| *len > 0 && offset.checked_add(*len).is_some_and(|end| end <= MAX));
        lens.sort_unstable();
        lens.dedup();
        if matches!(call, FileCall::WriteDirect | FileCall::ReadDirect) {
            lens.retain(|len| offset % 512 == 0 && len % 512 == 0);
        }
        // Not direct reads across the largest size: Linux refuses them, the engine reads a part.
        lens.retain(|len| call != FileCall::ReadDirect || offset >= limit || offset + len <= limit);
        ranges.extend(lens.into_iter().map(|len| (offset, len)));
    }
    ranges
}

/// Makes a file of `size` and runs a call. Returns the result, the size afterwards, and whether the
/// start of the file is unchanged.
fn outcome(
    side: &dyn Implementation,
    block: u64,
    size: u64,
    (call, offset, len): (FileCall, u64, u64),
) -> (Result<u64, i32>, u64, bool) {
    let start = pattern(block);
    side.posix().create("/file", 0o644).unwrap();
    side.posix().write("/file", 0, &start).unwrap();
    side.posix().truncate("/file", size).unwrap();
    let result = side.call("file", call, offset, len);
    let after = side.size("file");
    let bytes = side.posix().read("/file", 0, start.len()).unwrap();
    let same = bytes == start;
    side.posix().unlink("/file").unwrap();
    (result, after, same)
}

/// Checks that both sides have the same outcome of every call, for one kind of image.
fn compare(ours: &dyn Implementation, other: &dyn Implementation, block: u64, limit: u64) {
    let mut wrong = Vec::new();
    for &call in CALLS {
        for (offset, len) in ranges(block, limit, call) {
            for size in [4 * block, limit] {
                let args = (call, offset, len);
                let (got, want) =
                    (outcome(ours, block, size, args), outcome(other, block, size, args));
                if got != want {
                    let at = format!("{call:?} {offset:#x} {len:#x}, size {size:#x}");
                    wrong.push(format!("{at}: {got:x?}, Linux {want:x?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn block_size(args: &[&str]) -> u64 {
    args[args.iter().position(|arg| *arg == "-b").unwrap() + 1].parse().unwrap()
}

fn on_both(
    args: &[&str],
    test: impl FnOnce(&dyn Implementation, Option<&dyn Implementation>),
) -> Result<(), Skip> {
    let (image, theirs) = (Image::make(32 << 20, args)?, Image::make(32 << 20, args)?);
    let volume = image.open();
    let ours = Engine(&volume, VolumeFs(&volume));
    match KernelMount::new(&theirs.path(), Access::ReadWrite) {
        Ok(mount) => {
            test(&ours, Some(&Linux::new(mount.path())));
            mount.unmount();
        }
        Err(skip) => {
            skip.note();
            test(&ours, None);
        }
    }
    close(&volume);
    drop(volume);
    e2fs::assert_clean(&image.path());
    Ok(())
}

#[test]
fn the_largest_size_is_that_of_linux() {
    let mut wrong = Vec::new();
    for (kind, args, limit) in KINDS {
        let done = on_both(args, |ours, linux| {
            let (here, there) = (largest(ours), linux.map_or(*limit, largest));
            if here != *limit || there != *limit {
                wrong.push(format!("{kind}: {here:#x}, Linux {there:#x}, expected {limit:#x}"));
            }
        });
        need!(done);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn calls_beyond_the_limits_have_linux_results() {
    for (kind, args, _) in KINDS {
        eprintln!("kind {kind}");
        let done = on_both(args, |ours, linux| {
            let Some(linux) = linux else { return };
            compare(ours, linux, block_size(args), largest(linux));
        });
        need!(done);
    }
}

#[test]
fn calls_beyond_the_limits_do_not_change_the_start() {
    for (kind, args, _) in KINDS {
        eprintln!("kind {kind}");
        let block = block_size(args);
        let done = on_both(args, |ours, _| {
            let limit = largest(ours);
            for &call in CALLS {
                for (offset, len) in ranges(block, limit, call) {
                    if offset < limit.min(block << 32) - 3 * block {
                        continue;
                    }
                    for size in [4 * block, limit] {
                        let (result, after, same) = outcome(ours, block, size, (call, offset, len));
                        let at = format!("{call:?} {offset:#x} {len:#x}, size {size:#x}");
                        assert!(same, "{at}: {result:?} changed the start");
                        assert!(after <= limit, "{at}: size {after:#x}");
                    }
                }
            }
        });
        need!(done);
    }
}

/// Arguments that no system call can have, but a call of the library.
#[test]
fn unsigned_numbers_do_not_wrap() {
    let image = need!(Image::make(32 << 20, &["-t", "ext4", "-b", "4096"]));
    let volume = image.open();
    let (root, start) = (Cred::root(), pattern(4096));
    let ino = volume.mknod(&root, ROOT_INO, b"file", NewNode::Regular, 0o644).unwrap().ino;
    volume.write(&root, ino, 0, &start).unwrap();
    let modes = [
        FallocateMode::Allocate,
        FallocateMode::KeepSize,
        FallocateMode::PunchHole,
        FallocateMode::ZeroRange { keep_size: true },
        FallocateMode::ZeroRange { keep_size: false },
        FallocateMode::CollapseRange,
        FallocateMode::InsertRange,
    ];
    let edges = [1 << 63, u64::MAX - 8191, u64::MAX - 4095, u64::MAX];
    for offset in edges {
        for len in [1, 4096, 1 << 44, u64::MAX] {
            for mode in modes {
                let done = volume.fallocate(&root, ino, mode, offset, len);
                assert!(matches!(done, Err(Error::TooBig)), "{mode:?} {offset:#x} {len:#x}");
            }
        }
        for data in [&start[..1], &start[..4096]] {
            let done = volume.write(&root, ino, offset, data);
            assert!(matches!(done, Err(Error::TooBig)), "{offset:#x}: {done:?}");
            assert_eq!(volume.read(ino, offset, &mut vec![0; data.len()]).unwrap(), 0);
        }
        let aligned = offset / 4096 * 4096;
        let done = volume.write_direct(&root, ino, aligned, &start[..4096], Wait::Allowed);
        assert!(matches!(done, Err(Error::TooBig)), "{aligned:#x}: {done:?}");
        let mut buf = vec![0; 4096];
        assert_eq!(volume.read_direct(ino, aligned, &mut buf, Wait::Allowed).unwrap(), 0);
        for kind in [SeekKind::Data, SeekKind::Hole] {
            assert!(matches!(volume.seek(ino, offset, kind), Err(Error::NoData)));
        }
        assert!(matches!(volume.fiemap(ino, offset, 1, 9), Err(Error::TooBig)), "{offset:#x}");
    }
    let mut back = vec![0; start.len()];
    volume.read(ino, 0, &mut back).unwrap();
    assert_eq!(back, start);
    assert_eq!(volume.getattr(ino).unwrap().size, start.len() as u64);
    close(&volume);
    drop(volume);
    e2fs::assert_clean(&image.path());
}

/// `fiemap` finds extents up to the last block that a file can have, and none past it.
#[test]
fn the_last_block_is_found() {
    let image = need!(Image::make(32 << 20, &["-t", "ext4", "-b", "4096"]));
    let volume = image.open();
    let root = Cred::root();
    let ino = volume.mknod(&root, ROOT_INO, b"file", NewNode::Regular, 0o644).unwrap().ino;
    let limit = 0xffff_ffff_u64 << 12;
    assert_eq!(volume.write(&root, ino, limit - 4096, &[7; 5000]).unwrap(), 4096);
    assert!(matches!(volume.write(&root, ino, limit, &[7]), Err(Error::TooBig)));
    assert_eq!(volume.seek(ino, 0, SeekKind::Data).unwrap(), limit - 4096);
    assert_eq!(volume.seek(ino, limit - 1, SeekKind::Hole).unwrap(), limit);
    let found = volume.fiemap(ino, 0, u64::MAX, 9).unwrap();
    assert_eq!((found.len(), found[0].logical, found[0].last), (1, limit - 4096, true));
    assert_eq!(volume.fiemap(ino, limit - 1, 1, 9).unwrap(), found);
    assert_eq!(volume.fiemap(ino, limit, 4096, 9).unwrap(), []);
    volume.fallocate(&root, ino, FallocateMode::PunchHole, limit - 4096, 4096).unwrap();
    assert_eq!(volume.fiemap(ino, 0, u64::MAX, 9).unwrap(), []);
    close(&volume);
    drop(volume);
    e2fs::assert_clean(&image.path());
}
