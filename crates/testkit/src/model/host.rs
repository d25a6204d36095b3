//! The calls of [`PosixFs`] as system calls below a directory.

use super::{Errno, PosixFs, RenameFlags, XattrFlags};
use crate::tree::Kind;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid,
    XattrFlags as Flags,
};
use rustix::io::Errno as Os;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

type Done = Result<(), Errno>;

/// A directory of the host as a [`PosixFs`]; sets the process's umask to 0.
#[derive(Clone, Debug)]
pub struct HostFs(PathBuf);

fn os<T>(result: Result<T, Os>) -> Result<T, Errno> {
    result.map_err(Os::raw_os_error)
}

fn io<T>(result: std::io::Result<T>) -> Result<T, Errno> {
    result.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
}

/// A path to the file of a descriptor of [`HostFs::hold`].
fn proc_path(held: &File) -> String {
    format!("/proc/self/fd/{}", held.as_raw_fd())
}

/// Opens the same file with other flags.
fn reopen(held: &File, flags: OFlags) -> Result<File, Errno> {
    Ok(os(rustix::fs::open(proc_path(held), flags | OFlags::CLOEXEC, Mode::empty()))?.into())
}

impl HostFs {
    /// The file system below `path`.
    pub fn new(path: impl AsRef<Path>) -> Self {
        rustix::process::umask(Mode::empty());
        Self(path.as_ref().into())
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// A descriptor of the file that `path` names now. Later changes of the name do not affect it.
    fn hold(&self, path: &str) -> Result<(File, Kind), Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = File::from(os(rustix::fs::open(self.at(path), flags, Mode::empty()))?);
        let mode = io(held.metadata())?.mode();
        Ok((held, Kind::of_mode(mode).ok_or(libc::EINVAL)?))
    }

    /// Opens a regular file, or returns the error of other kinds. Never opens another kind, even if
    /// another thread replaces the file by a fifo or a device.
    fn open(&self, path: &str) -> Result<File, Errno> {
        match self.hold(path)? {
            (held, Kind::File) => reopen(&held, OFlags::RDWR),
            (_, Kind::Dir) => Err(libc::EISDIR),
            (_, Kind::Symlink) => Err(libc::ELOOP),
            _ => Err(libc::EINVAL),
        }
    }

    fn fallocate(&self, path: &str, how: FallocateFlags, offset: u64, len: u64) -> Done {
        os(rustix::fs::fallocate(self.open(path)?, how, offset, len))
    }
}

fn keep(keep_size: bool) -> FallocateFlags {
    if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() }
}

impl PosixFs for HostFs {
    fn create(&self, path: &str, mode: u32) -> Done {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        os(rustix::fs::open(self.at(path), flags, Mode::from_raw_mode(mode))).map(drop)
    }

    fn mkdir(&self, path: &str, mode: u32) -> Done {
        os(rustix::fs::mkdir(self.at(path), Mode::from_raw_mode(mode)))
    }

    fn mknod(&self, path: &str, mode: u32, (major, minor): (u32, u32)) -> Done {
        let (kind, bits) = (FileType::from_raw_mode(mode), Mode::from_raw_mode(mode & 0o7777));
        let device = rustix::fs::makedev(major, minor);
        os(rustix::fs::mknodat(CWD, self.at(path), kind, bits, device))
    }

    fn symlink(&self, target: &str, path: &str) -> Done {
        os(rustix::fs::symlink(target, self.at(path)))
    }

    fn link(&self, from: &str, to: &str) -> Done {
        os(rustix::fs::linkat(CWD, self.at(from), CWD, self.at(to), AtFlags::empty()))
    }

    fn unlink(&self, path: &str) -> Done {
        os(rustix::fs::unlink(self.at(path)))
    }

    fn rmdir(&self, path: &str) -> Done {
        os(rustix::fs::rmdir(self.at(path)))
    }

    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Done {
        let flags = match flags {
            RenameFlags::Replace => rustix::fs::RenameFlags::empty(),
            RenameFlags::NoReplace => rustix::fs::RenameFlags::NOREPLACE,
            RenameFlags::Exchange => rustix::fs::RenameFlags::EXCHANGE,
        };
        os(rustix::fs::renameat_with(CWD, self.at(from), CWD, self.at(to), flags))
    }

    fn write(&self, path: &str, offset: u64, bytes: &[u8]) -> Done {
        io(self.open(path)?.write_all_at(bytes, offset))
    }

    fn read(&self, path: &str, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let file = self.open(path)?;
        let mut bytes = vec![0; len];
        let mut done = 0;
        while done < len {
            match io(file.read_at(&mut bytes[done..], offset + done as u64))? {
                0 => break,
                n => done += n,
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    fn truncate(&self, path: &str, size: u64) -> Done {
        io(self.open(path)?.set_len(size))
    }

    fn allocate(&self, path: &str, offset: u64, len: u64, keep_size: bool) -> Done {
        self.fallocate(path, keep(keep_size), offset, len)
    }

    fn punch(&self, path: &str, offset: u64, len: u64) -> Done {
        self.fallocate(path, FallocateFlags::PUNCH_HOLE | keep(true), offset, len)
    }

    fn zero(&self, path: &str, offset: u64, len: u64, keep_size: bool) -> Done {
        self.fallocate(path, FallocateFlags::ZERO_RANGE | keep(keep_size), offset, len)
    }

    fn collapse(&self, path: &str, offset: u64, len: u64) -> Done {
        self.fallocate(path, FallocateFlags::COLLAPSE_RANGE, offset, len)
    }

    fn insert(&self, path: &str, offset: u64, len: u64) -> Done {
        self.fallocate(path, FallocateFlags::INSERT_RANGE, offset, len)
    }

    fn chmod(&self, path: &str, mode: u32) -> Done {
        match self.hold(path)? {
            (_, Kind::Symlink) => Err(libc::EOPNOTSUPP),
            (held, _) => {
                os(rustix::fs::chmod(proc_path(&held), Mode::from_raw_mode(mode & 0o7777)))
            }
        }
    }

    fn chown(&self, path: &str, uid: u32, gid: u32) -> Done {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        os(rustix::fs::chownat(CWD, self.at(path), uid, gid, AtFlags::SYMLINK_NOFOLLOW))
    }

    fn utimes(&self, path: &str, (seconds, nanos): (i64, u32)) -> Done {
        let time = Timespec { tv_sec: seconds, tv_nsec: nanos.into() };
        let times = Timestamps { last_access: time, last_modification: time };
        os(rustix::fs::utimensat(CWD, self.at(path), &times, AtFlags::SYMLINK_NOFOLLOW))
    }

    fn set_xattr(&self, path: &str, name: &str, value: &[u8], how: XattrFlags) -> Done {
        let flags = match how {
            XattrFlags::Any => Flags::empty(),
            XattrFlags::Create => Flags::CREATE,
            XattrFlags::Replace => Flags::REPLACE,
        };
        os(rustix::fs::lsetxattr(self.at(path), name, value, flags))
    }

    fn remove_xattr(&self, path: &str, name: &str) -> Done {
        os(rustix::fs::lremovexattr(self.at(path), name))
    }

    fn get_xattr(&self, path: &str, name: &str) -> Result<Vec<u8>, Errno> {
        let mut value = vec![0; 65536];
        let len = os(rustix::fs::lgetxattr(self.at(path), name, &mut value[..]))?;
        value.truncate(len);
        Ok(value)
    }

    fn fsync(&self, path: &str) -> Done {
        let file = match self.hold(path)? {
            (held, Kind::Dir) => reopen(&held, OFlags::RDONLY)?,
            _ => self.open(path)?,
        };
        io(file.sync_all())
    }
}
