//! A volume as a `PosixFs`: paths and error numbers.

use nextent::inodes::{
    Access, Attr, FallocateMode, InodeNo, Inodes, NewNode, RenameMode, SetAttr, SetTime, XattrMode,
};
use nextent::{Cred, DeviceNo, DiskTime, Error, FileType};
use nextent_testkit::{PosixFs, RenameFlags, XattrFlags};

type PosixResult = Result<(), i32>;

/// A volume, used by root.
pub struct VolumeFs<'v>(pub &'v Inodes);

/// Linux's number for an error.
pub fn errno(error: Error) -> i32 {
    if matches!(error, Error::Io(_) | Error::Corrupt(_)) {
        eprintln!("volume: {error}");
    }
    error.errno()
}

impl VolumeFs<'_> {
    fn at(&self, path: &str) -> Result<Attr, i32> {
        self.0.resolve(&Cred::root(), path.as_bytes(), false).map_err(errno)
    }

    fn parent<'p>(&self, path: &'p str) -> Result<(InodeNo, &'p [u8]), i32> {
        self.0.resolve_parent(&Cred::root(), path.as_bytes()).map_err(errno)
    }

    fn file(&self, path: &str) -> Result<InodeNo, i32> {
        let attr = self.at(path)?;
        match attr.kind {
            FileType::Regular => Ok(attr.ino),
            FileType::Directory => Err(libc::EISDIR),
            FileType::Symlink => Err(libc::ELOOP),
            _ => Err(libc::EINVAL),
        }
    }

    fn set(&self, ino: InodeNo, set: &SetAttr) -> PosixResult {
        self.0.setattr(&Cred::root(), ino, set).map(drop).map_err(errno)
    }

    fn fallocate(&self, path: &str, mode: FallocateMode, offset: u64, len: u64) -> PosixResult {
        let ino = self.file(path)?;
        self.0.fallocate(&Cred::root(), ino, mode, offset, len).map_err(errno)
    }
}

impl PosixFs for VolumeFs<'_> {
    fn create(&self, path: &str, mode: u32) -> PosixResult {
        let (dir, name) = self.parent(path)?;
        let root = Cred::root();
        self.0.mknod(&root, dir, name, NewNode::Regular, mode as u16).map(drop).map_err(errno)
    }

    fn mkdir(&self, path: &str, mode: u32) -> PosixResult {
        let (dir, name) = self.parent(path)?;
        // mkdir(2) uses only the permission bits and the sticky bit.
        let mode = (mode & 0o1777) as u16;
        self.0.mkdir(&Cred::root(), dir, name, mode).map(drop).map_err(errno)
    }

    fn mknod(&self, path: &str, mode: u32, (major, minor): (u32, u32)) -> PosixResult {
        let (dir, name) = self.parent(path)?;
        let number = DeviceNo { major, minor };
        let node = match mode & libc::S_IFMT {
            libc::S_IFIFO => NewNode::Fifo,
            libc::S_IFSOCK => NewNode::Socket,
            libc::S_IFCHR => NewNode::CharDevice(number),
            libc::S_IFBLK => NewNode::BlockDevice(number),
            _ => NewNode::Regular,
        };
        let mode = (mode & 0o7777) as u16;
        self.0.mknod(&Cred::root(), dir, name, node, mode).map(drop).map_err(errno)
    }

    fn symlink(&self, target: &str, path: &str) -> PosixResult {
        let (dir, name) = self.parent(path)?;
        let root = Cred::root();
        self.0.symlink(&root, dir, name, target.as_bytes()).map(drop).map_err(errno)
    }

    fn link(&self, from: &str, to: &str) -> PosixResult {
        let ino = self.at(from)?.ino;
        let (dir, name) = self.parent(to)?;
        self.0.link(&Cred::root(), ino, dir, name).map(drop).map_err(errno)
    }

    fn unlink(&self, path: &str) -> PosixResult {
        let (dir, name) = self.parent(path)?;
        self.0.unlink(&Cred::root(), dir, name).map_err(errno)
    }

    fn rmdir(&self, path: &str) -> PosixResult {
        let (dir, name) = self.parent(path)?;
        self.0.rmdir(&Cred::root(), dir, name).map_err(errno)
    }

    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> PosixResult {
        let (from, to) = (self.parent(from)?, self.parent(to)?);
        let mode = match flags {
            RenameFlags::Replace => RenameMode::Replace,
            RenameFlags::NoReplace => RenameMode::NoReplace,
            RenameFlags::Exchange => RenameMode::Exchange,
        };
        self.0.rename(&Cred::root(), from, to, mode).map_err(errno)
    }

    fn write(&self, path: &str, offset: u64, bytes: &[u8]) -> PosixResult {
        let ino = self.file(path)?;
        let done = self.0.write(&Cred::root(), ino, offset, bytes).map_err(errno)?;
        if done == bytes.len() { Ok(()) } else { Err(libc::ENOSPC) }
    }

    fn read(&self, path: &str, offset: u64, len: usize) -> Result<Vec<u8>, i32> {
        let ino = self.file(path)?;
        let mut buf = vec![0xaa; len];
        let done = self.0.read(ino, offset, &mut buf).map_err(errno)?;
        buf.truncate(done);
        Ok(buf)
    }

    fn truncate(&self, path: &str, size: u64) -> PosixResult {
        let ino = self.file(path)?;
        self.set(ino, &SetAttr { size: Some(size), ..SetAttr::default() })
    }

    fn allocate(&self, path: &str, offset: u64, len: u64, keep_size: bool) -> PosixResult {
        let keep = FallocateMode::KeepSize;
        let mode = if keep_size { keep } else { FallocateMode::Allocate };
        self.fallocate(path, mode, offset, len)
    }

    fn punch(&self, path: &str, offset: u64, len: u64) -> PosixResult {
        self.fallocate(path, FallocateMode::PunchHole, offset, len)
    }

    fn zero(&self, path: &str, offset: u64, len: u64, keep_size: bool) -> PosixResult {
        self.fallocate(path, FallocateMode::ZeroRange { keep_size }, offset, len)
    }

    fn collapse(&self, path: &str, offset: u64, len: u64) -> PosixResult {
        self.fallocate(path, FallocateMode::CollapseRange, offset, len)
    }

    fn insert(&self, path: &str, offset: u64, len: u64) -> PosixResult {
        self.fallocate(path, FallocateMode::InsertRange, offset, len)
    }

    fn chmod(&self, path: &str, mode: u32) -> PosixResult {
        let attr = self.at(path)?;
        if attr.kind == FileType::Symlink {
            return Err(libc::EOPNOTSUPP);
        }
        self.set(attr.ino, &SetAttr { mode: Some(mode as u16), ..SetAttr::default() })
    }

    fn chown(&self, path: &str, uid: u32, gid: u32) -> PosixResult {
        let ino = self.at(path)?.ino;
        self.set(ino, &SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() })
    }

    fn utimes(&self, path: &str, (seconds, nanos): (i64, u32)) -> PosixResult {
        let ino = self.at(path)?.ino;
        let time = SetTime::At(DiskTime::new(seconds, nanos));
        self.set(ino, &SetAttr { mtime: Some(time), ..SetAttr::default() })
    }

    fn set_xattr(&self, path: &str, name: &str, value: &[u8], how: XattrFlags) -> PosixResult {
        let ino = self.at(path)?.ino;
        let mode = match how {
            XattrFlags::Any => XattrMode::Either,
            XattrFlags::Create => XattrMode::Create,
            XattrFlags::Replace => XattrMode::Replace,
        };
        self.0.setxattr(&Cred::root(), ino, name.as_bytes(), value, mode).map_err(errno)
    }

    fn remove_xattr(&self, path: &str, name: &str) -> PosixResult {
        let ino = self.at(path)?.ino;
        self.0.removexattr(&Cred::root(), ino, name.as_bytes()).map_err(errno)
    }

    fn get_xattr(&self, path: &str, name: &str) -> Result<Vec<u8>, i32> {
        let ino = self.at(path)?.ino;
        self.0.getxattr(&Cred::root(), ino, name.as_bytes()).map_err(errno)
    }

    fn fsync(&self, path: &str) -> PosixResult {
        let attr = self.at(path)?;
        let ino = match attr.kind {
            FileType::Directory => attr.ino,
            _ => self.file(path)?,
        };
        self.0.open_file(&Cred::root(), ino, Access::READ).map_err(errno)?;
        let synced = self.0.fsync(ino).map_err(errno);
        self.0.release(ino).map_err(errno)?;
        synced
    }
}
