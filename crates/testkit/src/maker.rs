//! Makes random trees on the host, with all attributes that a copy must keep.
//!
//! The same seed makes the same tree, except for times of change and what the host refuses. Device
//! nodes, owners and ACLs need root, and some file systems have no extended attributes. A refusal
//! is counted and is not an error.

use crate::Rng;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chownat, lsetxattr,
    makedev, mknodat, utimensat,
};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The parameters of a tree.
#[derive(Clone, Debug)]
pub struct TreeMaker {
    /// The seed of all random choices.
    pub seed: u64,
    /// The approximate number of files of all types.
    pub files: usize,
    /// The longest regular file in bytes, sparse files excepted.
    pub longest: u64,
    /// Files in one large directory, which gets an index.
    pub big_dir: usize,
    /// Levels of one chain of directories.
    pub depth: usize,
    /// Whether to make device nodes, other owners, trusted attributes and ACLs (needs root).
    pub privileged: bool,
}

impl Default for TreeMaker {
    fn default() -> Self {
        let privileged = rustix::process::geteuid().is_root();
        Self { seed: 1, files: 300, longest: 200_000, big_dir: 400, depth: 30, privileged }
    }
}

/// Counts of a new tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Files of all types.
    pub files: usize,
    /// Attributes, owners and nodes that the host refused.
    pub refused: usize,
}

struct Work<'a> {
    spec: &'a TreeMaker,
    rng: Rng,
    dirs: Vec<PathBuf>,
    regular: Vec<PathBuf>,
    all: Vec<PathBuf>,
    made: Made,
}

/// An ACL in the format of system calls: owner, user 1234, group, mask, others.
const ACL: [u8; 44] = [
    2, 0, 0, 0, // version
    1, 0, 7, 0, 255, 255, 255, 255, // owner rwx
    2, 0, 5, 0, 0xd2, 4, 0, 0, // user 1234 r-x
    4, 0, 5, 0, 255, 255, 255, 255, // group r-x
    16, 0, 5, 0, 255, 255, 255, 255, // mask r-x
    32, 0, 4, 0, 255, 255, 255, 255, // others r--
];

impl TreeMaker {
    /// Makes the tree in the existing directory `root`.
    ///
    /// # Errors
    /// If the host refuses plain files, directories or links.
    pub fn make(&self, root: &Path) -> io::Result<Made> {
        let mut work = Work {
            spec: self,
            rng: Rng::new(self.seed),
            dirs: vec![root.into()],
            regular: Vec::new(),
            all: Vec::new(),
            made: Made::default(),
        };
        for _ in 0..self.files {
            work.one()?;
        }
        work.big_dir(root)?;
        work.deep_chain(root)?;
        work.finish()?;
        Ok(work.made)
    }
}

impl Work<'_> {
    fn name(&mut self) -> Vec<u8> {
        let n = self.made.files;
        match self.rng.below(20) {
            0 => {
                let mut name = format!("{n}-").into_bytes();
                name.resize(255, b'l');
                name
            }
            1 => format!("{n} with spaces, 'quotes' and \"more\"").into_bytes(),
            2 => format!("{n}-\u{e4}\u{6f22}\u{1f600}").into_bytes(),
            3 => [n.to_string().as_bytes(), b"-\xff\xfe\x01\n\\"].concat(),
            4 => format!(".{n}").into_bytes(),
            5 => format!("-{n}").into_bytes(),
            _ => format!("f{n}").into_bytes(),
        }
    }

    fn new_path(&mut self) -> PathBuf {
        let name = std::ffi::OsString::from_vec(self.name());
        let dir = self.rng.pick(&self.dirs).clone();
        dir.join(name)
    }

    fn one(&mut self) -> io::Result<()> {
        let path = self.new_path();
        match self.rng.below(100) {
            0..15 => {
                fs::create_dir(&path)?;
                self.dirs.push(path.clone());
            }
            15..22 => symlink("s".repeat(1 + self.rng.below(59) as usize), &path)?,
            22..26 => symlink("long/".repeat(20 + self.rng.below(200) as usize), &path)?,
            26..34 if !self.regular.is_empty() => {
                let from = self.rng.pick(&self.regular).clone();
                fs::hard_link(from, &path)?;
            }
            34..37 => self.node(&path, FileType::Fifo, 0),
            37..39 => self.node(&path, FileType::Socket, 0),
            39..42 if self.spec.privileged => {
                let device = makedev(self.rng.below(4000) as u32, self.rng.below(100_000) as u32);
                let kind = *self.rng.pick(&[FileType::CharacterDevice, FileType::BlockDevice]);
                self.node(&path, kind, device);
            }
            42..50 => self.sparse(&path)?,
            _ => self.regular(&path)?,
        }
        self.made.files += 1;
        self.all.push(path);
        Ok(())
    }

    fn node(&mut self, path: &Path, kind: FileType, device: u64) {
        let done = mknodat(CWD, path, kind, Mode::from_raw_mode(0o640), device);
        self.made.refused += usize::from(done.is_err());
    }

    fn regular(&mut self, path: &Path) -> io::Result<()> {
        let longest = self.spec.longest.max(1);
        let len = match self.rng.below(10) {
            0 => 0,
            1..=6 => self.rng.below(longest.min(9000)),
            _ => self.rng.below(longest),
        };
        let bytes = self.rng.bytes(len as usize);
        fs::File::create(path)?.write_all(&bytes)?;
        self.regular.push(path.into());
        Ok(())
    }

    fn sparse(&mut self, path: &Path) -> io::Result<()> {
        let file = fs::File::create(path)?;
        let mut at = 0;
        for _ in 0..self.rng.below(6) {
            at += self.rng.below(1 << 22);
            let len = 1 + self.rng.below(20_000) as usize;
            let bytes = self.rng.bytes(len);
            file.write_all_at(&bytes, at)?;
            at += len as u64;
        }
        file.set_len(at + self.rng.below(1 << 20))?;
        self.regular.push(path.into());
        Ok(())
    }

    fn big_dir(&mut self, root: &Path) -> io::Result<()> {
        if self.spec.big_dir == 0 {
            return Ok(());
        }
        let dir = root.join("big");
        fs::create_dir(&dir)?;
        for n in 0..self.spec.big_dir {
            fs::write(dir.join(format!("an-entry-with-a-middling-name-{n}")), [])?;
        }
        self.made.files += self.spec.big_dir + 1;
        Ok(())
    }

    fn deep_chain(&mut self, root: &Path) -> io::Result<()> {
        let mut dir = root.join("deep");
        for level in 0..self.spec.depth {
            fs::create_dir(&dir)?;
            dir.push(format!("level{level}"));
            self.made.files += 1;
        }
        Ok(())
    }

    /// Sets attributes, owners, modes, and finally times, of directories after their contents.
    fn finish(&mut self) -> io::Result<()> {
        for path in std::mem::take(&mut self.all).iter().rev() {
            let kind = fs::symlink_metadata(path)?.file_type();
            if kind.is_file() || kind.is_dir() {
                self.attributes(path);
            }
            self.owner_and_mode(path, kind.is_symlink())?;
            let seconds = self.rng.below(8_000_000_000) as i64 - 1_000_000_000;
            let time = Timespec { tv_sec: seconds, tv_nsec: self.rng.below(1_000_000_000) as _ };
            let times = Timestamps { last_access: time, last_modification: time };
            utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    fn attributes(&mut self, path: &Path) {
        if self.rng.percent(20) {
            for n in 0..1 + self.rng.below(4) {
                let len = self.rng.below(if n == 0 { 700 } else { 60 }) as usize;
                let value = self.rng.bytes(len);
                self.attribute(path, &format!("user.attribute{n}"), &value);
            }
        }
        if self.spec.privileged && self.rng.percent(5) {
            self.attribute(path, "trusted.t", b"trusted");
        }
        if self.spec.privileged && self.rng.percent(8) {
            self.attribute(path, "system.posix_acl_access", &ACL);
            if path.is_dir() {
                self.attribute(path, "system.posix_acl_default", &ACL);
            }
        }
    }

    fn attribute(&mut self, path: &Path, name: &str, value: &[u8]) {
        let done = lsetxattr(path, name, value, XattrFlags::empty());
        self.made.refused += usize::from(done.is_err());
    }

    fn owner_and_mode(&mut self, path: &Path, link: bool) -> io::Result<()> {
        if self.spec.privileged && self.rng.percent(30) {
            let uid = Uid::from_raw(self.rng.below(100_000) as u32);
            let gid = Gid::from_raw(self.rng.below(100_000) as u32);
            let done = chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
            self.made.refused += usize::from(done.is_err());
        }
        if !link && self.rng.percent(40) {
            // The test must be able to read it.
            let mode = self.rng.below(0o10000) as u32 | 0o700;
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
        Ok(())
    }
}
