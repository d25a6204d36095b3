//! A source that reads the host.
//!
//! A file is identified by its name in a directory ([`host_dirs`](super::host_dirs)), a file that
//! the user named by that path.

use super::entry::{FileId, Kind, Meta, Xattr};
use super::host_dirs::{HostDirRef, OPEN, by_descriptor, id_of};
use super::host_sys;
use super::{EntryError, Result, Source};
use crate::escape;
use nextent::{DeviceNo, DiskTime};
use nextent_num::{must_fit, to_u64};
use nextent_sync::Arc;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, SeekFrom, Stat, fgetxattr, flistxattr, fstat, getxattr,
    lgetxattr, listxattr, llistxattr, major, minor, openat, readlinkat, seek, statat,
};
use rustix::io::{Errno, pread, read};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The first buffer for attributes, in bytes.
const XATTR_GUESS: usize = 1024;

/// The host's files.
pub struct HostSource {
    /// Whether extended attributes are read.
    xattrs: bool,
    /// Images in use: copying one into itself would not end.
    avoid: Vec<FileId>,
}

impl HostSource {
    /// The host's files, with their extended attributes if `xattrs`, without those in `avoid`.
    pub fn new(xattrs: bool, avoid: Vec<FileId>) -> Self {
        Self { xattrs, avoid }
    }

    /// As [`meta`](Source::meta), and faster in a thread that has a working directory of its own,
    /// which becomes that of the file.
    pub(super) fn meta_in(&self, node: &HostNode) -> Result<Meta> {
        self.meta_from(node, true)
    }

    fn meta_from(&self, node: &HostNode, moves: bool) -> Result<Meta> {
        let flags = if node.follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        node.with(|dir, name| {
            let stat = statat(dir, name, flags)?;
            let at = match node.dir {
                Some(_) if moves && host_sys::work_in(dir) => At::Path(name, false),
                Some(_) => At::Name(dir, name),
                None => At::Path(name, node.follow),
            };
            let meta = attributes(self, at, &stat)?;
            let special = !matches!(meta.kind, Kind::File | Kind::Dir);
            Ok(if node.contents && special { meta.into_stream() } else { meta })
        })
    }
}

/// The identity of a file of the host.
pub fn id(meta: &Metadata) -> FileId {
    FileId { volume: meta.dev(), ino: meta.ino() }
}

/// A file of the host.
#[derive(Clone)]
pub struct HostNode {
    /// The directory that was listed; none for a path that the user gave.
    dir: Option<Arc<HostDirRef>>,
    /// The name in it, or that path.
    name: Box<OsStr>,
    /// A link at that path is followed.
    follow: bool,
    /// The contents of pipes and devices are copied.
    contents: bool,
}

impl HostNode {
    /// The file at `path`; a link is followed only if `follow`.
    pub fn top(path: &Path, follow: bool) -> Self {
        Self { dir: None, name: path.as_os_str().into(), follow, contents: false }
    }

    /// The same, with the contents of a pipe or a device.
    pub fn contents(path: &Path) -> Self {
        Self { contents: true, ..Self::top(path, true) }
    }

    /// Whether it is a file that the user named by an absolute path.
    pub(super) fn is_absolute(&self) -> bool {
        self.dir.is_none() && Path::new(&*self.name).is_absolute()
    }

    /// The file as a directory.
    pub(super) fn as_dir(&self) -> Arc<HostDirRef> {
        match &self.dir {
            Some(dir) => HostDirRef::below(dir, &self.name),
            None => HostDirRef::top(Path::new(&*self.name)),
        }
    }

    /// Calls `act` with the parent directory and the name.
    fn with<R>(&self, act: impl FnOnce(BorrowedFd<'_>, &OsStr) -> Result<R>) -> Result<R> {
        match &self.dir {
            Some(dir) => act(dir.held()?.as_fd(), &self.name),
            None => act(CWD, &self.name),
        }
    }
}

/// An open file of the host.
pub struct HostOpen {
    fd: OwnedFd,
    /// A pipe or a device: reads go on where the last one ended.
    stream: bool,
}

impl HostOpen {
    /// Whether it is still the file that had the attributes `meta`, with the same contents as far
    /// as its length and time say.
    pub(crate) fn is_unchanged(&self, meta: &Meta) -> Result<bool> {
        let stat = fstat(&self.fd)?;
        let size = u64::try_from(stat.st_size).ok();
        Ok(id_of(&stat) == meta.id && size == Some(meta.size) && mtime(&stat) == meta.mtime)
    }
}

/// The time of the last change of contents.
fn mtime(stat: &Stat) -> DiskTime {
    let nanos = i128::from(stat.st_mtime_nsec);
    DiskTime::new(stat.st_mtime, u32::try_from(nanos).unwrap_or(0))
}

impl Source for HostSource {
    type Node = HostNode;
    type File = HostOpen;

    fn show(&self, node: &HostNode) -> String {
        match &node.dir {
            Some(dir) => escape::path(dir.path().join(&*node.name)),
            None => escape::path(&*node.name),
        }
    }

    fn meta(&self, node: &HostNode) -> Result<Meta> {
        self.meta_from(node, false)
    }

    fn list(&self, node: &HostNode, each: &mut dyn FnMut(Vec<u8>, HostNode)) -> Result<()> {
        let dir = node.as_dir();
        list(&dir, |name, _| {
            let name = OsStr::from_bytes(name);
            let (dir, own) = (Some(Arc::clone(&dir)), name.into());
            let node = HostNode { dir, name: own, follow: false, contents: false };
            each(name.as_bytes().to_vec(), node);
        })
    }

    fn open(&self, node: &HostNode, meta: &Meta) -> Result<HostOpen> {
        let mut flags = OPEN;
        // As cp(1): opening a pipe waits for its writer.
        flags.set(OFlags::NONBLOCK, !meta.stream);
        flags.set(OFlags::NOFOLLOW, !node.follow);
        let fd = node.with(|dir, name| Ok(openat(dir, name, flags, Mode::empty())?))?;
        Ok(HostOpen { fd, stream: meta.stream })
    }

    fn data(&self, file: &HostOpen, meta: &Meta) -> Result<Vec<Range<u64>>> {
        data(&file.fd, meta)
    }

    fn read(&self, file: &HostOpen, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if !file.stream {
            return read_at(&file.fd, offset, buf);
        }
        loop {
            match read(&file.fd, &mut *buf) {
                Err(Errno::INTR) => {}
                done => return Ok(done?),
            }
        }
    }
}

/// Calls `each` with the names in `dir` and their kinds, except `.` and `..`.
pub(super) fn list(dir: &Arc<HostDirRef>, mut each: impl FnMut(&[u8], FileType)) -> Result<()> {
    let held = dir.held()?;
    if !held.readable {
        return Err(Errno::ACCESS.into());
    }
    // The descriptor may have been used for a listing before.
    seek(&*held, SeekFrom::Start(0))?;
    let skip_dots = |name: &[u8], kind: FileType| {
        if !matches!(name, b"." | b"..") {
            each(name, kind);
        }
    };
    Ok(host_sys::read_directory(held.as_fd(), skip_dots)?)
}

/// The data ranges of `file`, in order, up to `meta.size`.
pub(super) fn data(file: impl AsFd, meta: &Meta) -> Result<Vec<Range<u64>>> {
    if meta.allocated >= meta.size {
        return Ok(meta.whole());
    }
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < meta.size {
        let start = match seek(&file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            // The file system does not report holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(meta.whole()),
            Err(error) => return Err(error.into()),
        };
        let end = seek(&file, SeekFrom::Hole(start))?.min(meta.size);
        if end <= start {
            break;
        }
        ranges.push(start..end);
        at = end;
    }
    Ok(ranges)
}

/// Reads from `at` until `buf` is full or the file ends.
pub(super) fn read_at(file: impl AsFd, mut at: u64, buf: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match pread(&file, &mut buf[done..], at) {
            Ok(0) => break,
            Ok(n) => (done, at) = (done + n, at + to_u64(n)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

/// How to reach a file for attributes that `stat` does not have.
#[derive(Clone, Copy)]
pub(super) enum At<'a> {
    File(BorrowedFd<'a>),
    /// A name in a directory.
    Name(BorrowedFd<'a>, &'a OsStr),
    /// A path that the user gave, and whether a link is followed.
    Path(&'a OsStr, bool),
}

/// All attributes of a file.
pub(super) fn attributes(source: &HostSource, at: At<'_>, stat: &Stat) -> Result<Meta> {
    let id = id_of(stat);
    if source.avoid.contains(&id) {
        return Err(EntryError::new("is the image that is being used; left out"));
    }
    let kind = kind(at, stat)?;
    // A file system in user space may return any size.
    let size = u64::try_from(stat.st_size).map_err(|_| EntryError::new("has a negative size"))?;
    let nanos = |nanos: i128| u32::try_from(nanos).unwrap_or(0);
    let xattrs = if source.xattrs { xattrs(at, &kind)? } else { Vec::new() };
    Ok(Meta {
        id,
        kind,
        mode: must_fit(stat.st_mode & 0o7777),
        uid: stat.st_uid,
        gid: stat.st_gid,
        links: must_fit(stat.st_nlink),
        size,
        allocated: u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512),
        atime: DiskTime::new(stat.st_atime, nanos(stat.st_atime_nsec.into())),
        mtime: mtime(stat),
        xattrs,
        stream: false,
    })
}

fn kind(at: At<'_>, stat: &Stat) -> Result<Kind> {
    let device = || DeviceNo { major: major(stat.st_rdev), minor: minor(stat.st_rdev) };
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => match at {
            At::Name(dir, name) => Kind::Symlink(readlinkat(dir, name, Vec::new())?.into_bytes()),
            At::Path(path, _) => Kind::Symlink(readlinkat(CWD, path, Vec::new())?.into_bytes()),
            At::File(_) => return Err(EntryError::new("changed while it was read")),
        },
        FileType::CharacterDevice => Kind::Char(device()),
        FileType::BlockDevice => Kind::Block(device()),
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::Unknown => return Err(EntryError::new("has a type that cannot be copied")),
    })
}

/// Whether an attribute belongs to the file, not to its file system.
fn travels(name: &[u8]) -> bool {
    !name.starts_with(b"system.") || name.starts_with(b"system.posix_acl_")
}

/// A file as calls for extended attributes name it; no such call takes a directory and a name.
enum Asked<'a> {
    Open(BorrowedFd<'a>),
    Opened(OwnedFd),
    /// Not through a link.
    Link(PathBuf),
    Followed(PathBuf),
}

impl<'a> Asked<'a> {
    /// The name for `at`, which is a `kind`; none if there is no such name.
    fn new(at: At<'a>, kind: &Kind) -> Result<Option<Self>> {
        Ok(Some(match at {
            At::File(file) => Self::Open(file),
            At::Path(path, true) => Self::Followed(path.into()),
            At::Path(path, false) => Self::Link(path.into()),
            At::Name(dir, name) => match by_descriptor(dir) {
                Some(dir) => Self::Link(dir.join(name)),
                // Opening pipes and devices has side effects.
                None if matches!(kind, Kind::File | Kind::Dir) => {
                    Self::Opened(openat(dir, name, OPEN, Mode::empty())?)
                }
                None => return Ok(None),
            },
        }))
    }

    fn list(&self, buf: &mut [u8]) -> rustix::io::Result<usize> {
        match self {
            Self::Open(file) => flistxattr(file, buf),
            Self::Opened(file) => flistxattr(file, buf),
            Self::Link(path) => llistxattr(path, buf),
            Self::Followed(path) => listxattr(path, buf),
        }
    }

    fn get(&self, name: &OsStr, buf: &mut [u8]) -> rustix::io::Result<usize> {
        match self {
            Self::Open(file) => fgetxattr(file, name, buf),
            Self::Opened(file) => fgetxattr(file, name, buf),
            Self::Link(path) => lgetxattr(path, name, buf),
            Self::Followed(path) => getxattr(path, name, buf),
        }
    }
}

fn xattrs(at: At<'_>, kind: &Kind) -> Result<Vec<Xattr>> {
    let Some(asked) = Asked::new(at, kind)? else { return Ok(Vec::new()) };
    let list = |buf: &mut [u8]| asked.list(buf);
    // Most files have few attributes or none.
    let mut buf = [0; 256];
    let names = match list(&mut buf[..]) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Ok(len) => buf[..len].to_vec(),
        Err(Errno::RANGE) => grow(list)?,
        Err(error) => return Err(EntryError::from(error).at("listxattr")),
    };
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty() && travels(name));
    let mut all = Vec::new();
    for name in names {
        let shown = OsStr::from_bytes(name);
        match grow(|buf| asked.get(shown, buf)) {
            Ok(value) => all.push((name.to_vec(), value)),
            // The attribute was removed meanwhile.
            Err(Errno::NODATA) => {}
            Err(error) => return Err(EntryError::from(error).at("getxattr")),
        }
    }
    all.sort();
    Ok(all)
}

/// The output of `get`, which is called with growing buffers.
fn grow(get: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut buf = vec![0; XATTR_GUESS];
    loop {
        match get(&mut buf) {
            Ok(len) => {
                buf.truncate(len);
                return Ok(buf);
            }
            // The largest lists and values of Linux have 64 KiB.
            Err(Errno::RANGE) if buf.len() < 1 << 20 => buf = vec![0; buf.len() * 8],
            Err(error) => return Err(error),
        }
    }
}
