//! Fills volumes with files of all kinds, spread over the groups, with free space between them.

use nextent::inodes::{Inodes, SetAttr};
use nextent::{Cred, DiskTime};
use nextent_ondisk::Incompat;
use nextent_testkit::{PosixFs, Rng, XattrFlags};

use super::common::VolumeFs;

/// Directories below the root. The allocator spreads them over the groups.
pub(crate) const DIRS: u64 = 10;

/// How a volume is filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    pub(crate) seed: u64,
    /// Names in the directory with an index.
    pub(crate) names: usize,
    /// How much of the free space is used at first, in percent. Most of it is freed again.
    pub(crate) percent: u64,
}

impl Default for Fill {
    fn default() -> Self {
        Self { seed: 1, names: 200, percent: 85 }
    }
}

/// Fills the volume.
pub(crate) fn fill(volume: &Inodes, how: Fill) {
    let mut rng = Rng::new(how.seed);
    let work = &mut Work { volume, fs: VolumeFs(volume), rng: &mut rng };
    for n in 0..DIRS {
        work.fs.mkdir(&format!("/d{n}"), 0o755).unwrap();
        work.fs.mkdir(&format!("/d{n}/sub"), 0o2775).unwrap();
        work.fs.mkdir(&format!("/d{n}/sub/deeper"), 0o700).unwrap();
        work.kinds(&format!("/d{n}"), n);
    }
    work.index(how.names);
    work.ages(how.percent);
    work.moved_parents();
    work.attributes();
}

/// Changes some files: writes, removes, makes new ones.
pub(crate) fn change(volume: &Inodes, rng: &mut Rng) {
    let work = &mut Work { volume, fs: VolumeFs(volume), rng };
    let dirs: Vec<u64> = (0..DIRS).filter(|_| work.rng.percent(40)).collect();
    for n in dirs {
        let dir = format!("/d{n}");
        for _ in 0..work.rng.below(6) {
            let (old, tag) = (work.rng.below(12), work.rng.below(1000));
            let _ = work.fs.unlink(&format!("{dir}/fill{old}"));
            let path = format!("{dir}/new{tag}");
            let _ = work.fs.mkdir(&format!("{dir}/dir{tag}"), 0o755);
            let len = work.rng.below(60_000) as usize;
            let bytes = work.rng.bytes(len);
            if work.fs.create(&path, 0o644).is_ok() {
                let at = work.rng.below(30_000);
                let _ = work.fs.write(&path, at, &bytes);
            }
        }
    }
}

struct Work<'a> {
    volume: &'a Inodes,
    fs: VolumeFs<'a>,
    rng: &'a mut Rng,
}

impl Work<'_> {
    fn has_extents(&self) -> bool {
        self.volume.geometry().features.has(Incompat::EXTENTS)
    }

    fn write(&mut self, path: &str, offset: u64, len: u64) {
        let bytes = self.rng.bytes(len as usize);
        self.fs.write(path, offset, &bytes).unwrap();
    }

    fn file(&mut self, path: &str, offset: u64, len: u64) {
        self.fs.create(path, 0o644).unwrap();
        self.write(path, offset, len);
    }

    /// One file of each kind in `dir`, the `n`th directory.
    fn kinds(&mut self, dir: &str, n: u64) {
        let block = u64::from(self.volume.geometry().block_size);
        self.file(&format!("{dir}/plain"), 0, 3 * block / 2);
        self.fs.link(&format!("{dir}/plain"), &format!("{dir}/sub/hard")).unwrap();
        self.fs.link(&format!("{dir}/plain"), &format!("/hard{n}")).unwrap();
        self.fs.symlink("plain", &format!("{dir}/fast")).unwrap();
        self.fs.symlink(&"slow/".repeat(60), &format!("{dir}/slow")).unwrap();
        let special = [libc::S_IFIFO, libc::S_IFSOCK, libc::S_IFCHR, libc::S_IFBLK];
        let kind = special[n as usize % special.len()];
        self.fs.mknod(&format!("{dir}/special"), kind | 0o640, (n as u32, 70_000)).unwrap();
        match n % 7 {
            // More runs than fit the inode; of the first, more than fit a node.
            0 => self.fragments(&format!("{dir}/fragments"), if n == 0 { 400 } else { 20 }),
            // Indirect blocks of three levels, where the file has such.
            1 => {
                self.file(&format!("{dir}/far"), 20 * block, 700);
                self.write(&format!("{dir}/far"), (12 + block / 4 + 7) * block, 5000);
                let double = (block / 4) * (block / 4);
                self.write(&format!("{dir}/far"), (12 + block / 4 + double + 9) * block, 5000);
            }
            2 if self.has_extents() => {
                self.file(&format!("{dir}/unwritten"), 3 * block, block);
                let path = format!("{dir}/unwritten");
                self.fs.allocate(&path, 0, 20 * block, false).unwrap();
                self.fs.allocate(&path, 30 * block, 9 * block, true).unwrap();
                self.write(&path, 10 * block, 2 * block);
            }
            3 => {
                self.file(&format!("{dir}/long"), 0, 300 * block.min(2048));
                self.file(&format!("{dir}/sub/deeper/leaf"), 100, 100);
            }
            4 => self.file(&format!("{dir}/empty"), 0, 0),
            _ => self.file(&format!("{dir}/sub/tail"), 500_000, 1),
        }
    }

    fn fragments(&mut self, path: &str, count: u64) {
        let block = u64::from(self.volume.geometry().block_size);
        self.fs.create(path, 0o600).unwrap();
        // Backwards, so that the runs on the volume are apart, too.
        for n in (0..count).rev() {
            self.write(path, 2 * n * block, block);
        }
    }

    /// A directory that has an index, with names of many files.
    fn index(&mut self, names: usize) {
        self.fs.mkdir("/index", 0o755).unwrap();
        for n in 0..names {
            let name = format!("/index/a-name-of-middling-length-{n}");
            match n % 8 {
                0 => self.fs.create(&name, 0o644).unwrap(),
                _ => self.fs.link(&format!("/d{}/plain", n as u64 % DIRS), &name).unwrap(),
            }
        }
    }

    /// Writes files until little space is left, and removes most of them.
    fn ages(&mut self, percent: u64) {
        let block = u64::from(self.volume.geometry().block_size);
        let free = self.volume.statfs().unwrap().blocks_available;
        let mut left = free * percent / 100;
        let mut made = Vec::new();
        for n in 0.. {
            let len = 1 + self.rng.below(40).min(left / 2);
            if left < len + 4 || n > 40 * DIRS {
                break;
            }
            left -= len + 1;
            let path = format!("/d{}/fill{}", n % DIRS, n / DIRS);
            let bytes = len * block - self.rng.below(block);
            self.file(&path, 0, bytes);
            made.push(path);
        }
        // Committed first, so that the files have their places.
        self.volume.sync().unwrap();
        for path in made {
            match self.rng.below(10) {
                0..6 => self.fs.unlink(&path).unwrap(),
                6 if self.has_extents() => self.fs.punch(&path, block, 2 * block).unwrap(),
                7 => self.fs.truncate(&path, 700).unwrap(),
                _ => {}
            }
        }
        self.volume.sync().unwrap();
    }

    /// Directories whose parents have higher inode numbers.
    fn moved_parents(&mut self) {
        for n in 0..DIRS / 2 {
            let (low, high) = (format!("/d{n}/sub"), format!("/d{}/below", DIRS - 1 - n));
            self.fs.rename(&low, &high, nextent_testkit::RenameFlags::Replace).unwrap();
        }
    }

    /// Extended attributes, owners, times and flags.
    fn attributes(&mut self) {
        let root = Cred::root();
        for n in 0..DIRS {
            let (path, dir) = (format!("/d{n}/plain"), format!("/d{n}"));
            let short = self.rng.bytes(20);
            self.fs.set_xattr(&path, "user.short", &short, XattrFlags::Any).unwrap();
            if n % 2 == 0 {
                let long = self.rng.bytes(300);
                self.fs.set_xattr(&dir, "user.long", &long, XattrFlags::Any).unwrap();
            }
            // The same attributes, so that files may share a block.
            let same = format!("/d{n}/slow");
            self.fs.set_xattr(&same, "trusted.same", &[7; 400], XattrFlags::Any).unwrap();
            self.fs.chown(&path, n as u32 * 1000, 70_000).unwrap();
            let ino = self.volume.resolve(&root, path.as_bytes(), false).unwrap().ino;
            let set = SetAttr {
                atime: Some(nextent::inodes::SetTime::At(DiskTime::new(1_000_000_007, 13))),
                ctime: Some(DiskTime::new(1_000_000_009, 17)),
                crtime: Some(DiskTime::new(1_000_000_011, 19)),
                flags: (n % 3 == 0).then_some(self.volume.getattr(ino).unwrap().flags | 0x80),
                ..SetAttr::default()
            };
            self.volume.setattr(&root, ino, &set).unwrap();
        }
    }
}
