//! A mounted directory as a target, by system calls.

use super::{Done, OpError, Session, Space, Stat, Target, WriteQueue};
use crate::failure::Failure;
use nextent::inodes::Buffer;
use nextent_device::queue::{Completed, Direction, Piece, Transfer};
use nextent_device::{DeviceQueue, FileDevice};
use rustix::fs::{self, AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, Timestamps};
use rustix::io::Errno;
use std::convert::Infallible;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A new directory below the given one, removed when dropped.
pub(crate) struct Directory {
    path: PathBuf,
}

impl Directory {
    /// Creates the new directory in `parent`.
    ///
    /// # Errors
    /// [`Failure::Usage`] if it cannot be created.
    pub(crate) fn at(parent: &Path) -> Result<Self, Failure> {
        let path = parent.join(format!("nextent-bench-{}", std::process::id()));
        match std::fs::create_dir(&path) {
            Ok(()) => Ok(Self { path }),
            Err(error) => {
                let why = "a target is a directory that exists and may be written";
                Err(Failure::usage(format!("dir:{}: {error}; {why}", parent.display())))
            }
        }
    }

    /// Flushes the file system, so that the next run does not wait for writes of this one.
    pub(crate) fn flush(&self) {
        // A file system that cannot flush has no writes to wait for.
        let _ = self.open().and_then(fs::syncfs);
    }

    fn open(&self) -> Result<OwnedFd, Errno> {
        fs::open(&self.path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // The mounted server may have ended; a destructor cannot report that.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

impl Target for Directory {
    type Session<'t>
        = DirectorySession
    where
        Self: 't;

    fn session(&self) -> Done<DirectorySession> {
        Ok(DirectorySession { root: self.open().map_err(failed)? })
    }
}

/// One thread's view: a descriptor of its own for the directory.
pub(crate) struct DirectorySession {
    root: OwnedFd,
}

fn failed(errno: Errno) -> OpError {
    match errno {
        Errno::NOSPC | Errno::DQUOT => OpError::Full,
        Errno::NOENT | Errno::NOTDIR => OpError::NotFound,
        Errno::EXIST => OpError::Exists,
        other => OpError::Other(std::io::Error::from(other).to_string().into()),
    }
}

fn stat_of(stat: &fs::Stat) -> Stat {
    let is_dir = fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::Directory;
    Stat { size: u64::try_from(stat.st_size).unwrap_or(0), is_dir }
}

impl Session for DirectorySession {
    type Dir = OwnedFd;
    type File = OwnedFd;
    /// No system call starts a handle.
    type Probe = Infallible;
    type Queue = FileQueue;

    fn root(&self) -> &OwnedFd {
        &self.root
    }

    fn ensure_dir(&self, parent: &OwnedFd, name: &CStr) -> Done<OwnedFd> {
        match self.make_dir(parent, name) {
            Ok(()) | Err(OpError::Exists) => {}
            Err(error) => return Err(error),
        }
        self.open_dir(parent, name)
    }

    fn open_dir(&self, parent: &OwnedFd, name: &CStr) -> Done<OwnedFd> {
        let how = OFlags::DIRECTORY | OFlags::CLOEXEC;
        fs::openat(parent, name, how, Mode::empty()).map_err(failed)
    }

    fn make_dir(&self, parent: &OwnedFd, name: &CStr) -> Done<()> {
        fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)).map_err(failed)
    }

    fn remove_dir(&self, parent: &OwnedFd, name: &CStr) -> Done<()> {
        fs::unlinkat(parent, name, AtFlags::REMOVEDIR).map_err(failed)
    }

    fn create(&self, dir: &OwnedFd, name: &CStr) -> Done<OwnedFd> {
        let how = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        fs::openat(dir, name, how, Mode::from_raw_mode(0o644)).map_err(failed)
    }

    fn open(&self, dir: &OwnedFd, name: &CStr) -> Done<OwnedFd> {
        match fs::openat(dir, name, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::ISDIR) => self.open_dir(dir, name),
            opened => opened.map_err(failed),
        }
    }

    fn close(&self, file: OwnedFd) -> Done<()> {
        drop(file);
        Ok(())
    }

    fn unlink(&self, dir: &OwnedFd, name: &CStr) -> Done<()> {
        fs::unlinkat(dir, name, AtFlags::empty()).map_err(failed)
    }

    fn rename(&self, from: (&OwnedFd, &CStr), to: (&OwnedFd, &CStr)) -> Done<()> {
        fs::renameat(from.0, from.1, to.0, to.1).map_err(failed)
    }

    fn stat(&self, dir: &OwnedFd, name: &CStr) -> Done<Stat> {
        let found = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
        found.map(|stat| stat_of(&stat)).map_err(failed)
    }

    fn stat_open(&self, file: &OwnedFd) -> Done<Stat> {
        fs::fstat(file).map(|stat| stat_of(&stat)).map_err(failed)
    }

    fn touch(&self, file: &OwnedFd) -> Done<()> {
        let now = fs::Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        fs::futimens(file, &times).map_err(failed)
    }

    #[inline]
    fn fallocate(&self, file: &OwnedFd, offset: u64, len: u64) -> Done<()> {
        fs::fallocate(file, FallocateFlags::empty(), offset, len).map_err(failed)
    }

    #[inline]
    fn truncate(&self, file: &OwnedFd, len: u64) -> Done<()> {
        fs::ftruncate(file, len).map_err(failed)
    }

    fn write(&self, file: &OwnedFd, mut offset: u64, mut data: &[u8]) -> Done<()> {
        while !data.is_empty() {
            let written = rustix::io::pwrite(file, data, offset).map_err(failed)?;
            data = &data[written..];
            offset += written as u64;
        }
        Ok(())
    }

    fn open_direct(&self, dir: &OwnedFd, name: &CStr) -> Done<OwnedFd> {
        let how = OFlags::RDWR | OFlags::CLOEXEC | OFlags::DIRECT;
        fs::openat(dir, name, how, Mode::empty()).map_err(failed)
    }

    #[inline]
    fn write_direct(&self, file: &OwnedFd, offset: u64, data: &[u8]) -> Done<()> {
        self.write(file, offset, data)
    }

    fn queue(&self, file: OwnedFd, depth: usize) -> Done<FileQueue> {
        let failed = |error: std::io::Error| OpError::Other(error.to_string().into());
        let device = FileDevice::from_open(file.into()).map_err(failed)?;
        Ok(FileQueue { queue: device.own_queue(depth), done: Vec::with_capacity(depth) })
    }

    fn read(&self, file: &OwnedFd, offset: u64, buf: &mut [u8]) -> Done<usize> {
        rustix::io::pread(file, buf, offset).map_err(failed)
    }

    fn fsync(&self, file: &OwnedFd) -> Done<()> {
        fs::fsync(file).map_err(failed)
    }

    fn lock(&self, file: &OwnedFd, on: bool) -> Done<()> {
        let how = match on {
            true => FlockOperation::NonBlockingLockExclusive,
            false => FlockOperation::NonBlockingUnlock,
        };
        fs::fcntl_lock(file, how).map_err(failed)
    }

    fn space(&self) -> Done<Space> {
        let found = fs::fstatvfs(&self.root).map_err(failed)?;
        Ok(Space {
            bytes: found.f_blocks * found.f_frsize,
            free_bytes: found.f_bavail * found.f_frsize,
            free_inodes: found.f_favail,
        })
    }

    fn list(&self, dir: &OwnedFd, each: &mut dyn FnMut(&[u8]) -> bool) -> Done<()> {
        let mut buf = [MaybeUninit::uninit(); 8192];
        let mut entries = fs::RawDir::new(dir, &mut buf);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") && !each(name) {
                break;
            }
        }
        Ok(())
    }

    #[inline]
    fn locate<R>(&self, path: &CStr, then: impl FnOnce(&OwnedFd, &CStr) -> Done<R>) -> Done<R> {
        then(&self.root, path)
    }

    fn probe(&self, _: &OwnedFd) -> Done<Infallible> {
        Err(OpError::Other("no system call starts a handle".into()))
    }

    fn handle(&self, probe: &Infallible, _: u32, _: bool) -> Done<()> {
        match *probe {}
    }

    /// Runs `filefrag` of e2fsprogs, since FIEMAP needs unsafe code.
    fn extents(&self, file: &OwnedFd) -> Option<u64> {
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let path = std::fs::read_link(path).ok()?;
        let search = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("filefrag");
        command.env("PATH", format!("{search}:/usr/sbin:/sbin")).env("LC_ALL", "C").arg(path);
        let output = command.output().ok().filter(|output| output.status.success())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let words: Vec<&str> = text.trim_end().rsplit(": ").next()?.split(' ').collect();
        words.first()?.parse().ok()
    }
}

/// Direct writes in flight by the queue of the device layer, which uses io_uring.
pub(crate) struct FileQueue {
    queue: Box<dyn DeviceQueue>,
    done: Vec<Completed>,
}

impl WriteQueue for FileQueue {
    #[inline]
    fn write(&mut self, offset: u64, buffer: Buffer) -> Done<()> {
        let pieces = Piece { offset, start: 0, len: buffer.len() }.into();
        self.queue.submit(Transfer { tag: 0, direction: Direction::Write, buffer, pieces });
        Ok(())
    }

    fn complete(&mut self, least: usize, spare: &mut Vec<Buffer>) -> Done<()> {
        self.queue.complete(least, &mut self.done);
        for Completed { transfer, result } in self.done.drain(..) {
            spare.push(transfer.buffer);
            result.map_err(|error| match error.raw_os_error() {
                Some(errno) => failed(Errno::from_raw_os_error(errno)),
                None => OpError::Other(error.to_string().into()),
            })?;
        }
        Ok(())
    }

    fn end(mut self) -> Done<()> {
        self.complete(usize::MAX, &mut Vec::new())
    }
}
