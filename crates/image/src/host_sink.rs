//! A sink that writes to the host.
//!
//! Names come from images and streams that may be hostile, so a name must be one component. Files
//! are made relative to an open directory ([`host_dirs`](super::host_dirs)), and attributes are set
//! on open files whose identity was checked. So a symbolic link in the target is replaced or
//! refused and never leads out of it, even if another program makes the link during the copy.
//!
//! A pipe or a device in the target is opened and written, as by cp(1); it keeps its attributes.

use super::entry::{FileId, Kind, Meta};
use super::host_dirs::{Held, HostDirRef, by_descriptor, id_of};
use super::host_sys;
use super::sink::{Created, Made, Order};
use super::writers::{Claim, Writers};
use super::{EntryError, Result, Sink, name};
use crate::escape;
use crate::umask::umask;
use nextent::{DeviceNo, DiskTime};
use nextent_num::{must_fit, to_u64};
use nextent_sync::Arc;
use nextent_sync::atomic::{AtomicU64, Ordering};
use rustix::fs::{
    Access, AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags,
    accessat, chmod, fremovexattr, fsetxattr, fstat, ftruncate, futimens, linkat, mkdirat, openat,
    removexattr, setxattr, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Why an image in use is not overwritten.
const IN_USE: &str = "is the image that is being used; not overwritten";

/// Directories of the host.
pub struct HostSink {
    preserve: bool,
    umask: u16,
    /// Images in use, which must not be overwritten.
    avoid: Vec<FileId>,
    /// Files of the target with several names are replaced, not overwritten.
    parts_names: bool,
    /// Files with several names that are being overwritten.
    writers: Arc<Writers>,
}

/// A directory of the target.
#[derive(Clone)]
pub struct HostDir(DirKind);

#[derive(Clone)]
enum DirKind {
    /// A directory, and whether this copy made it.
    Dir(Arc<HostDirRef>, bool),
    /// A file that the user named, possibly through links.
    File(Arc<Path>),
}

/// A file of the target.
#[derive(Clone)]
pub struct HostName {
    dir: Arc<HostDirRef>,
    name: Box<OsStr>,
    /// Its identity when it was made.
    id: FileId,
}

/// A file that is being written.
pub struct HostFile {
    file: File,
    id: FileId,
    /// The end of the written data. Relaxed: read after all writers are done.
    end: AtomicU64,
    order: Order,
    /// The claim on a file with several names.
    _claim: Option<Claim>,
}

impl HostFile {
    fn new(fd: OwnedFd, id: FileId, order: Order, claim: Option<Claim>) -> Self {
        Self { file: File::from(fd), id, end: AtomicU64::new(0), order, _claim: claim }
    }
}

impl HostSink {
    /// A sink that keeps owners, times, exact modes and attributes if `preserve`, and never writes
    /// the files `avoid`. Reads the umask, so call it before threads start.
    pub fn new(preserve: bool, avoid: Vec<FileId>) -> Self {
        Self { preserve, umask: umask(), avoid, parts_names: false, writers: Writers::new() }
    }

    /// Files of the target with several names are replaced if `parts`.
    pub fn parting_names(self, parts: bool) -> Self {
        Self { parts_names: parts, ..self }
    }

    /// An existing directory.
    pub fn dir(path: &Path) -> HostDir {
        HostDir(DirKind::Dir(HostDirRef::top(path), false))
    }

    /// A directory with one entry: the existing file that `path` leads to, as a pipe behind
    /// `/dev/stdout`.
    pub fn opened(path: &Path) -> HostDir {
        HostDir(DirKind::File(path.into()))
    }

    /// Sets the attributes of an open file.
    fn set_attributes(&self, what: &OpenFile<'_>, meta: &Meta) -> Result<()> {
        if !self.preserve {
            return Ok(());
        }
        what.chown(meta.uid, meta.gid)?;
        if !matches!(meta.kind, Kind::Symlink(_)) {
            what.chmod(meta.mode)?;
        }
        let attributes = set_xattrs(meta, what);
        what.set_times(&times(meta))?;
        attributes
    }

    /// Whether a file is replaced, not overwritten, since it has other names; as by cp(1) -a, also
    /// a pipe or a device.
    fn parts(&self, old: &Stat) -> bool {
        self.parts_names && old.st_nlink > 1
    }

    fn check_in_use(&self, id: FileId) -> Result<()> {
        if self.avoid.contains(&id) { Err(EntryError::new(IN_USE)) } else { Ok(()) }
    }

    /// Whether the existing file `name` in `dir` may be written.
    fn check_old(&self, dir: BorrowedFd<'_>, name: &OsStr, stat: &Stat) -> Result<()> {
        self.check_in_use(id_of(stat))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Socket {
            // The error of its open.
            return Err(Errno::NXIO.into());
        }
        Ok(accessat(dir, name, Access::WRITE_OK, AtFlags::EACCESS)?)
    }

    /// Opens the existing file `name` in `dir`, with attributes `stat`: a regular file to overwrite
    /// it, a pipe or a device to write to it.
    fn open_old(
        &self,
        (dir, name): (BorrowedFd<'_>, &OsStr),
        stat: &Stat,
        follow: OFlags,
    ) -> Result<HostFile> {
        let id = id_of(stat);
        self.check_in_use(id)?;
        let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC | follow;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let claim = (regular && stat.st_nlink > 1).then(|| self.writers.claim(stat.st_ino));
        // As cp(1): opening a pipe waits for its reader.
        let wait = if regular { OFlags::NONBLOCK } else { OFlags::empty() };
        let fd = openat(dir, name, flags | wait, Mode::empty())?;
        // Another file may have this name by now.
        if id_of(&fstat(&fd)?) != id {
            return Err(replaced());
        }
        if !regular {
            return Ok(HostFile::new(fd, id, Order::Stream, None));
        }
        ftruncate(&fd, 0)?;
        let order = if claim.is_some() { Order::OneWorker } else { Order::Any };
        Ok(HostFile::new(fd, id, order, claim))
    }

    /// Makes the file `name` in `dir`, or opens the existing one.
    fn make_file(&self, dir: BorrowedFd<'_>, name: &OsStr, meta: &Meta) -> Result<HostFile> {
        let keep = if self.preserve { 0o700 } else { 0o777 };
        let mode = Mode::from_raw_mode((meta.mode & keep).into());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let new = || -> rustix::io::Result<HostFile> {
            let fd = openat(dir, name, flags, mode)?;
            let id = id_of(&fstat(&fd)?);
            Ok(HostFile::new(fd, id, Order::Any, None))
        };
        match new() {
            Err(Errno::EXIST) => {}
            made => return Ok(made?),
        }
        let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory | FileType::Symlink => {
                clear(dir, name)?;
                Ok(new()?)
            }
            _ if self.parts(&stat) => {
                self.check_in_use(id_of(&stat))?;
                clear(dir, name)?;
                Ok(new()?)
            }
            _ => self.open_old((dir, name), &stat, OFlags::NOFOLLOW),
        }
    }
}

fn replaced() -> EntryError {
    EntryError::new("another program replaced it while it was copied to")
}

/// An open file to set attributes on. A name may mean another file by then.
struct OpenFile<'a> {
    fd: BorrowedFd<'a>,
    /// OpenFile for reading or writing, not with `O_PATH`.
    full: bool,
}

impl OpenFile<'_> {
    /// Calls libc, so that fakeroot sees it: rustix calls the system directly for `fchown` and
    /// `fchmod`.
    fn chown(&self, uid: u32, gid: u32) -> Result<()> {
        let done = match self.full {
            true => std::os::unix::fs::fchown(self.fd, Some(uid), Some(gid)),
            false => self.chown_place(Uid::from_raw(uid), Gid::from_raw(gid)).map_err(Into::into),
        };
        match done {
            // cp(1) -p without root ignores this, too.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(()),
            done => Ok(done?),
        }
    }

    fn chown_place(&self, uid: Uid, gid: Gid) -> rustix::io::Result<()> {
        host_sys::set_place_owner(self.fd, uid, gid)
    }

    fn chmod(&self, mode: u16) -> Result<()> {
        if self.full {
            let mode = nix::sys::stat::Mode::from_bits_truncate(mode.into());
            return Ok(nix::sys::stat::fchmod(self.fd, mode).map_err(std::io::Error::from)?);
        }
        let path = by_descriptor(self.fd)
            .ok_or_else(|| EntryError::new("its mode cannot be set: /proc is not mounted"))?;
        Ok(chmod(path, Mode::from_raw_mode(mode.into()))?)
    }

    fn set_times(&self, times: &Timestamps) -> rustix::io::Result<()> {
        if self.full {
            return futimens(self.fd, times);
        }
        match by_descriptor(self.fd) {
            Some(path) => utimensat(CWD, path, times, AtFlags::empty()),
            None => host_sys::set_place_times(self.fd, times),
        }
    }

    fn set_xattr(&self, name: &OsStr, value: &[u8]) -> rustix::io::Result<()> {
        match by_descriptor(self.fd).filter(|_| !self.full) {
            Some(path) => setxattr(path, name, value, XattrFlags::empty()),
            None => fsetxattr(self.fd, name, value, XattrFlags::empty()),
        }
    }

    fn remove_xattr(&self, name: &str) -> rustix::io::Result<()> {
        match by_descriptor(self.fd).filter(|_| !self.full) {
            Some(path) => removexattr(path, name),
            None => fremovexattr(self.fd, name),
        }
    }
}

impl<'a> From<&'a Held> for OpenFile<'a> {
    fn from(held: &'a Held) -> Self {
        Self { fd: held.as_fd(), full: held.readable }
    }
}

/// Attributes that hold access lists. An inherited list, or one of an overwritten file, is removed
/// if the source has none: it could admit other users.
const LISTS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

/// Sets the extended attributes of `meta` and removes access lists that it does not have.
fn set_xattrs(meta: &Meta, what: &OpenFile<'_>) -> Result<()> {
    let mut result = Ok(());
    let link = matches!(meta.kind, Kind::Symlink(_));
    let has = |list: &str| meta.xattrs.iter().any(|(name, _)| name == list.as_bytes());
    for list in LISTS.into_iter().filter(|list| !link && !has(list)) {
        match what.remove_xattr(list) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::ACCESS) => {}
            Err(error) => {
                result = Err(EntryError::from(error).mild().at("removing an access list"))
            }
        }
    }
    for (name, value) in &meta.xattrs {
        let name = OsStr::from_bytes(name);
        result = EntryError::worse(result, attribute(name, what.set_xattr(name, value)));
    }
    result
}

/// Leaves out an attribute that this host does not support or that only root may set.
fn attribute(name: &OsStr, done: rustix::io::Result<()>) -> Result<()> {
    match done {
        Err(Errno::OPNOTSUPP) => Ok(()),
        Err(Errno::PERM) if !name.as_bytes().starts_with(b"user.") => Ok(()),
        Err(error) => {
            Err(EntryError::from(error).mild().at(&format!("setxattr {}", escape::path(name))))
        }
        Ok(()) => Ok(()),
    }
}

fn times(meta: &Meta) -> Timestamps {
    let spec = |t: DiskTime| Timespec { tv_sec: t.seconds, tv_nsec: t.nanos.into() };
    Timestamps { last_access: spec(meta.atime), last_modification: spec(meta.mtime) }
}

/// Checks that `name` is one component.
fn checked(name: &[u8]) -> Result<&OsStr> {
    name::check(name)?;
    Ok(OsStr::from_bytes(name))
}

/// Removes an existing file for a new one; a directory stays.
fn clear(dir: BorrowedFd<'_>, name: &OsStr) -> Result<()> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => Err(directory_stays()),
        done => Ok(done?),
    }
}

fn directory_stays() -> EntryError {
    EntryError::new("cannot overwrite a directory with a file")
}

/// Makes an entry `name` in `dir`, after removing an existing file if necessary.
fn replace(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    make: impl Fn() -> rustix::io::Result<()>,
) -> Result<()> {
    match make() {
        Err(Errno::EXIST) => {
            clear(dir, name)?;
            Ok(make()?)
        }
        done => Ok(done?),
    }
}

impl HostDir {
    /// The directory; fails for a file.
    fn get(&self) -> Result<&Arc<HostDirRef>> {
        match &self.0 {
            DirKind::Dir(dir, _) => Ok(dir),
            DirKind::File(_) => Err(Errno::NOTDIR.into()),
        }
    }
}

impl Sink for HostSink {
    type Dir = HostDir;
    /// None for a file that the user named by a path.
    type Node = Option<HostName>;
    type File = HostFile;

    fn identity(&self, parent: &HostDir, name: &[u8]) -> Option<FileId> {
        let dir = parent.get().ok()?.held().ok()?;
        Some(id_of(&statat(&*dir, checked(name).ok()?, AtFlags::SYMLINK_NOFOLLOW).ok()?))
    }

    fn make_dir(&self, parent: &HostDir, name: &[u8], meta: &Meta) -> Result<HostDir> {
        let (parent, name) = (parent.get()?, checked(name)?);
        let held = parent.held()?;
        // Until it is finished only its owner needs access.
        let keep = if self.preserve { 0o700 } else { 0o1777 };
        // As cp(1): the umask removes these bits of directories even where a default access list
        // applies.
        let kept = meta.plain_mode() & keep & !(self.umask & 0o022);
        let mode = Mode::from_raw_mode((kept | 0o700).into());
        let made = match mkdirat(&*held, name, mode) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let dir = HostDirRef::below(parent, name);
        match dir.held() {
            Err(_) if !is_dir(&held, name)? => {
                Err(EntryError::new("cannot overwrite a file with a directory"))
            }
            held => held.map(|_| HostDir(DirKind::Dir(dir, made))),
        }
    }

    fn finish_dir(&self, dir: &HostDir, meta: &Meta) -> Result<()> {
        let DirKind::Dir(dir, made) = &dir.0 else { return Ok(()) };
        let missing = 0o700 & !meta.mode;
        let narrow = *made && !self.preserve && missing != 0;
        if !narrow && !self.preserve {
            return Ok(());
        }
        let held = dir.held()?;
        let what = OpenFile::from(&*held);
        if narrow {
            // Keeps what it inherited: set-group-id, an access list.
            let mode: u16 = must_fit(fstat(&*held)?.st_mode & 0o7777);
            what.chmod(mode & !missing)?;
        }
        self.set_attributes(&what, meta)
    }

    fn check_create(&self, parent: &HostDir, name: &[u8], _meta: &Meta) -> Result<()> {
        let dir = match &parent.0 {
            DirKind::Dir(dir, _) => dir.held()?,
            DirKind::File(path) => {
                let path = path.as_os_str();
                return self.check_old(CWD, path, &statat(CWD, path, AtFlags::empty())?);
            }
        };
        let name = checked(name)?;
        match statat(&*dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
            Ok(old) => match FileType::from_raw_mode(old.st_mode) {
                FileType::Directory => return Err(directory_stays()),
                FileType::Symlink => {}
                _ if self.parts(&old) => self.check_in_use(id_of(&old))?,
                _ => return self.check_old(dir.as_fd(), name, &old),
            },
        }
        // A name is made here.
        let want = Access::WRITE_OK | Access::EXEC_OK;
        Ok(accessat(&*dir, ".", want, AtFlags::EACCESS)?)
    }

    fn create(
        &self,
        parent: &HostDir,
        name: &[u8],
        meta: &Meta,
        _data: &[Range<u64>],
    ) -> Result<Created<HostFile, Option<HostName>>> {
        let dir = match &parent.0 {
            DirKind::Dir(dir, _) => dir,
            DirKind::File(path) => {
                let path = path.as_os_str();
                let stat = statat(CWD, path, AtFlags::empty())?;
                let file = self.open_old((CWD, path), &stat, OFlags::empty())?;
                let order = file.order;
                return Ok(Created { file, node: None, order });
            }
        };
        let name = checked(name)?;
        let file = self.make_file(dir.held()?.as_fd(), name, meta)?;
        let (order, id) = (file.order, file.id);
        let node = HostName { dir: Arc::clone(dir), name: name.into(), id };
        Ok(Created { file, node: Some(node), order })
    }

    fn write(&self, file: &HostFile, offset: u64, bytes: &[u8]) -> Result<()> {
        match file.order {
            Order::Stream => (&file.file).write_all(bytes)?,
            Order::Any | Order::OneWorker => file.file.write_all_at(bytes, offset)?,
        }
        file.end.fetch_max(offset + to_u64(bytes.len()), Ordering::Relaxed);
        Ok(())
    }

    fn finish(&self, file: &HostFile, meta: &Meta) -> Result<()> {
        if file.order == Order::Stream {
            return Ok(());
        }
        if file.end.load(Ordering::Relaxed) < meta.size {
            file.file.set_len(meta.size)?;
        }
        self.set_attributes(&OpenFile { fd: file.file.as_fd(), full: true }, meta)
    }

    fn special(
        &self,
        parent: &HostDir,
        name: &[u8],
        meta: &Meta,
    ) -> Result<Made<Option<HostName>>> {
        let (parent, name) = (parent.get()?, checked(name)?);
        let held = parent.held()?;
        let dir = held.as_fd();
        let node = |kind: FileType, device: DeviceNo| {
            let keep = if self.preserve { 0o700 } else { 0o7777 };
            let mode = Mode::from_raw_mode((meta.plain_mode() & keep).into());
            let numbers = (device.major, device.minor);
            replace(dir, name, || host_sys::create_special(dir, name, kind, mode, numbers))
                .map(|()| kind)
        };
        let kind = match &meta.kind {
            Kind::Symlink(target) => {
                let target = OsStr::from_bytes(target);
                replace(dir, name, || symlinkat(target, dir, name))?;
                FileType::Symlink
            }
            Kind::Char(device) => node(FileType::CharacterDevice, *device)?,
            Kind::Block(device) => node(FileType::BlockDevice, *device)?,
            Kind::Fifo => node(FileType::Fifo, DeviceNo::default())?,
            Kind::Socket => node(FileType::Socket, DeviceNo::default())?,
            Kind::File | Kind::Dir => return Err(EntryError::new("is not a special file")),
        };
        let flags = host_sys::PLACE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(dir, name, flags, Mode::empty())?;
        let stat = fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != kind || stat.st_nlink != 1 {
            return Err(replaced());
        }
        let attributes = self.set_attributes(&OpenFile { fd: fd.as_fd(), full: false }, meta);
        let id = id_of(&stat);
        Ok((Some(HostName { dir: Arc::clone(parent), name: name.into(), id }), attributes))
    }

    fn link(&self, node: &Option<HostName>, parent: &HostDir, name: &[u8]) -> Result<()> {
        let node = node.as_ref().ok_or_else(|| EntryError::new("has no name on this host"))?;
        let (name, to, from) = (checked(name)?, parent.get()?.held()?, node.dir.held()?);
        if id_of(&statat(&*from, &*node.name, AtFlags::SYMLINK_NOFOLLOW)?) != node.id {
            return Err(replaced());
        }
        let link = || linkat(&*from, &*node.name, &*to, name, AtFlags::empty());
        replace(to.as_fd(), name, link)
    }
}

/// Whether `name` in `dir` is a directory, not a link to one.
fn is_dir(dir: &Held, name: &OsStr) -> Result<bool> {
    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}
