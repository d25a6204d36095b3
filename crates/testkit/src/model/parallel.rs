//! Operations from many threads at once.
//!
//! *Apart*: each thread has its own directory, so its results must equal those of its own model,
//! whatever other threads do. *Together*: all threads use the same names, so many results may be
//! right. Only errors that no order of the calls explains are faults; the checkers examine the
//! image afterwards.

use super::op::{ops, same_result};
use super::{Errno, ModelFs, Op, PosixFs, RenameFlags, XattrFlags, perform};
use nextent_sync::thread;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

type Done = Result<(), Errno>;

/// Errors that a race may cause.
const EXPECTED: [Errno; 14] = [
    libc::ENOENT,
    libc::EEXIST,
    libc::ENOTDIR,
    libc::EISDIR,
    libc::ENOTEMPTY,
    libc::EINVAL,
    libc::ELOOP,
    libc::EPERM,
    libc::ENAMETOOLONG,
    libc::ENODATA,
    libc::EOPNOTSUPP,
    libc::EMLINK,
    libc::EBUSY,
    libc::ENXIO,
];

/// A sequence of `count` operations, the same for the same seed.
pub fn sample_ops(seed: u64, count: usize) -> Vec<Op> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_ne_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut all = Vec::new();
    while all.len() < count {
        let tree = ops(64).new_tree(&mut runner).expect("no filter can reject a sequence");
        all.extend(tree.current());
    }
    all.truncate(count);
    all
}

/// Makes the directories `/t0`, `/t1`, ..., runs `count` operations in each of them on `threads`
/// threads, and returns the models that they must equal.
///
/// # Errors
/// The first result that differs from the model's (model before file system).
pub fn run_apart<F>(
    fs: &F,
    block_size: u64,
    threads: usize,
    count: usize,
    seed: u64,
) -> Result<Vec<ModelFs>, String>
where
    F: PosixFs + Sync + ?Sized,
{
    thread::scope(|scope| {
        let start = |n: usize| {
            scope.spawn(move || {
                let dir = format!("/t{n}");
                fs.mkdir(&dir, 0o755).map_err(|errno| format!("mkdir {dir}: errno {errno}"))?;
                let (below, model) = (Below { fs, dir }, ModelFs::new(block_size));
                for op in sample_ops(seed + n as u64, count) {
                    same_result(&op, &model, &below)
                        .map_err(|text| format!("thread {n}: {text}"))?;
                }
                Ok(model)
            })
        };
        let handles: Vec<_> = (0..threads).map(start).collect();
        handles.into_iter().map(|handle| handle.join().expect("a thread panicked")).collect()
    })
}

/// Runs `count` operations on the same names from each of `threads` threads.
///
/// # Errors
/// The first result that no race explains.
pub fn run_together<F>(fs: &F, threads: usize, count: usize, seed: u64) -> Result<(), String>
where
    F: PosixFs + Sync + ?Sized,
{
    thread::scope(|scope| {
        let start = |n: usize| {
            scope.spawn(move || {
                for op in sample_ops(seed + n as u64, count) {
                    match perform(&op, fs) {
                        Err(errno) if !EXPECTED.contains(&errno) => {
                            let error = std::io::Error::from_raw_os_error(errno);
                            return Err(format!("thread {n}: {op:?}: {error}"));
                        }
                        _ => {}
                    }
                }
                Ok(())
            })
        };
        let handles: Vec<_> = (0..threads).map(start).collect();
        handles.into_iter().try_for_each(|handle| handle.join().expect("a thread panicked"))
    })
}

/// A file system whose root is a directory of another.
struct Below<'a, F: ?Sized> {
    fs: &'a F,
    dir: String,
}

impl<F: PosixFs + ?Sized> Below<'_, F> {
    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.dir)
    }
}

impl<F: PosixFs + ?Sized> PosixFs for Below<'_, F> {
    fn create(&self, path: &str, mode: u32) -> Done {
        self.fs.create(&self.at(path), mode)
    }
    fn mkdir(&self, path: &str, mode: u32) -> Done {
        self.fs.mkdir(&self.at(path), mode)
    }
    fn mknod(&self, path: &str, mode: u32, rdev: (u32, u32)) -> Done {
        self.fs.mknod(&self.at(path), mode, rdev)
    }
    fn symlink(&self, target: &str, path: &str) -> Done {
        self.fs.symlink(target, &self.at(path))
    }
    fn link(&self, from: &str, to: &str) -> Done {
        self.fs.link(&self.at(from), &self.at(to))
    }
    fn unlink(&self, path: &str) -> Done {
        self.fs.unlink(&self.at(path))
    }
    fn rmdir(&self, path: &str) -> Done {
        self.fs.rmdir(&self.at(path))
    }
    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Done {
        self.fs.rename(&self.at(from), &self.at(to), flags)
    }
    fn write(&self, path: &str, offset: u64, bytes: &[u8]) -> Done {
        self.fs.write(&self.at(path), offset, bytes)
    }
    fn read(&self, path: &str, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        self.fs.read(&self.at(path), offset, len)
    }
    fn truncate(&self, path: &str, size: u64) -> Done {
        self.fs.truncate(&self.at(path), size)
    }
    fn allocate(&self, path: &str, offset: u64, len: u64, keep_size: bool) -> Done {
        self.fs.allocate(&self.at(path), offset, len, keep_size)
    }
    fn punch(&self, path: &str, offset: u64, len: u64) -> Done {
        self.fs.punch(&self.at(path), offset, len)
    }
    fn zero(&self, path: &str, offset: u64, len: u64, keep_size: bool) -> Done {
        self.fs.zero(&self.at(path), offset, len, keep_size)
    }
    fn collapse(&self, path: &str, offset: u64, len: u64) -> Done {
        self.fs.collapse(&self.at(path), offset, len)
    }
    fn insert(&self, path: &str, offset: u64, len: u64) -> Done {
        self.fs.insert(&self.at(path), offset, len)
    }
    fn chmod(&self, path: &str, mode: u32) -> Done {
        self.fs.chmod(&self.at(path), mode)
    }
    fn chown(&self, path: &str, uid: u32, gid: u32) -> Done {
        self.fs.chown(&self.at(path), uid, gid)
    }
    fn utimes(&self, path: &str, mtime: (i64, u32)) -> Done {
        self.fs.utimes(&self.at(path), mtime)
    }
    fn set_xattr(&self, path: &str, name: &str, value: &[u8], how: XattrFlags) -> Done {
        self.fs.set_xattr(&self.at(path), name, value, how)
    }
    fn remove_xattr(&self, path: &str, name: &str) -> Done {
        self.fs.remove_xattr(&self.at(path), name)
    }
    fn get_xattr(&self, path: &str, name: &str) -> Result<Vec<u8>, Errno> {
        self.fs.get_xattr(&self.at(path), name)
    }
    fn fsync(&self, path: &str) -> Done {
        self.fs.fsync(&self.at(path))
    }
}
