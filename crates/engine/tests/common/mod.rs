//! Adapters of a volume to the testkit's oracles, and images to open.
#![allow(dead_code, unreachable_pub, unused_imports)] // each test binary uses a part

pub mod direct;
mod fast_commit;
mod posix;
mod recovery;
mod tree;

use std::path::{Path, PathBuf};

use nextent::OpenOptions;
use nextent::inodes::Inodes;
use nextent_device::{FileDevice, FileOptions};
use nextent_sync::{Arc, Duration, thread};
use nextent_testkit::{Skip, e2fs};

pub use fast_commit::{assert_durable, create_two_files, open_without_timer};
pub use posix::{VolumeFs, errno};
pub use recovery::{DurableFiles, check_aborted, check_cut, check_recovery, error_count};
pub use tree::VolumeTree;

/// An image in a temporary directory, which is removed when this is dropped.
pub struct Image {
    dir: tempfile::TempDir,
}

impl Image {
    /// An image of `size` bytes made by `mke2fs` with `args`.
    pub fn make(size: u64, args: &[&str]) -> Result<Self, Skip> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let image = Self { dir };
        e2fs::mke2fs(&image.path(), size, args)?;
        Ok(image)
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    pub fn open(&self) -> Inodes {
        open(&self.path(), &OpenOptions::default()).expect("the image opens")
    }
}

/// Opens the image at `path`.
pub fn open(path: &Path, options: &OpenOptions) -> nextent::Result<Inodes> {
    let device = open_file(path, &FileOptions::new());
    let options = options.clone().commit_interval(Duration::from_secs(1));
    Inodes::open(Arc::new(device), &options)
}

/// Closes a volume, and checks that no operation exceeded its estimate of journal credits.
#[track_caller]
pub fn close(volume: &Inodes) {
    assert_eq!(volume.credit_overruns(), 0, "an estimate of credits is too low");
    volume.close().expect("the volume closes");
}

/// Commits and checkpoints everything. The next fsync may be a fast commit.
pub fn checkpoint_all(volume: &Inodes) {
    volume.freeze().expect("the volume freezes");
    volume.thaw().expect("the volume thaws");
}

/// Opens the file, and retries while it is locked. A child process that another test forks has a
/// copy of every descriptor, and so of the lock, until it executes its program.
pub fn open_file(path: &Path, how: &FileOptions) -> FileDevice {
    for _ in 0..200 {
        match FileDevice::open(path, how) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(20));
            }
            opened => return opened.expect("the file opens"),
        }
    }
    panic!("{} stays locked", path.display());
}

/// Kinds of images: a name, and the arguments of `mke2fs`.
pub const KINDS: &[(&str, &[&str])] = &[
    ("ext4", &["-t", "ext4"]),
    ("upstream", &["-t", "ext4", "-O", "orphan_file,metadata_csum_seed"]),
    ("ext4-1k", &["-t", "ext4", "-b", "1024"]),
    ("ext4-2k-inode128", &["-t", "ext4", "-b", "2048", "-I", "128"]),
    ("ext4-inode1024", &["-t", "ext4", "-b", "4096", "-I", "1024"]),
    ("ext4-nocsum", &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"]),
    ("ext4-32bit", &["-t", "ext4", "-O", "^64bit,^flex_bg,^resize_inode,meta_bg"]),
    ("ext4-nojournal", &["-t", "ext4", "-O", "^has_journal"]),
    ("ext4-sparse2", &["-t", "ext4", "-O", "sparse_super2"]),
    ("ext3", &["-t", "ext3"]),
    ("ext3-1k", &["-t", "ext3", "-b", "1024"]),
    ("ext2", &["-t", "ext2"]),
    ("ext2-1k-rev0", &["-t", "ext2", "-b", "1024", "-r", "0"]),
];
