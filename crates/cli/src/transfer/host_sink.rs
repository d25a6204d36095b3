//! Writing to the host.
//!
//! Names come from images and streams that nobody vouches for: a name is one
//! component, and a link that exists in the target is replaced, not followed. A pipe or a device
//! in the target is opened and written, as cp(1) does; it keeps its attributes.

use super::entry::{FileId, Kind, Meta};
use super::host_source::id;
use super::sink::{Created, Made, Order};
use super::writers::{Claim, Writers};
use super::{Result, Sink, Trouble};
use crate::image::umask;
use crate::show;
use nextent::{DeviceNo, DiskTime};
use nextent_num::to_u64;
use nextent_sync::Arc;
use nextent_sync::atomic::{AtomicU64, Ordering};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chownat, fchown,
    fremovexattr, fsetxattr, futimens, lremovexattr, lsetxattr, makedev, mknodat, utimensat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Directories of the host.
pub(crate) struct HostSink {
    preserve: bool,
    umask: u16,
    /// Images in use, which must not be written beneath the volume.
    avoid: Vec<FileId>,
    /// Files with several names that are being overwritten.
    writers: Arc<Writers>,
}

/// A directory of the target.
#[derive(Clone, Debug)]
pub(crate) struct HostDir {
    path: Arc<Path>,
    /// It was made by this copy.
    made: bool,
    /// It is no directory but a file that the user named, through whatever links.
    is_file: bool,
}

/// A file that is being written.
pub(crate) struct HostFile {
    file: File,
    /// How far it was written. Relaxed: read after all writers are done.
    end: AtomicU64,
    order: Order,
    /// If other names lead to it.
    _claim: Option<Claim>,
}

impl HostFile {
    fn new(file: File, order: Order, claim: Option<Claim>) -> Self {
        Self { file, end: AtomicU64::new(0), order, _claim: claim }
    }
}

impl HostSink {
    /// Owners, times, exact modes and attributes are kept if `preserve`; the files `avoid` are
    /// never written. Reads the umask: call it before threads start.
    pub(crate) fn new(preserve: bool, avoid: Vec<FileId>) -> Self {
        Self { preserve, umask: umask(), avoid, writers: Writers::new() }
    }

    /// A directory that exists.
    pub(crate) fn dir(path: &Path) -> HostDir {
        HostDir { path: path.into(), made: false, is_file: false }
    }

    /// Stands for the existing file that `path` leads to, which has no other path: a pipe behind
    /// `/dev/stdout`, say.
    pub(crate) fn opened(path: &Path) -> HostDir {
        HostDir { path: path.into(), made: false, is_file: true }
    }

    fn keep(&self, path: &Path, meta: &Meta) -> Result<()> {
        if !self.preserve {
            return Ok(());
        }
        let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
        ignored(chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW))?;
        if !matches!(meta.kind, Kind::Symlink(_)) {
            fs::set_permissions(path, Permissions::from_mode(u32::from(meta.mode)))?;
        }
        let set = |name: &OsStr, value: &[u8]| lsetxattr(path, name, value, XattrFlags::empty());
        let told = set_xattrs(meta, set, |name| lremovexattr(path, name));
        utimensat(CWD, path, &times(meta), AtFlags::SYMLINK_NOFOLLOW)?;
        told
    }

    /// Opens a regular file at `path` to be overwritten, or something else to be written to.
    ///
    /// `flags` say whether a link at `path` is followed.
    fn open_old(&self, path: &Path, stat: &Metadata, flags: i32) -> Result<HostFile> {
        if self.avoid.contains(&id(stat)) {
            return Err(Trouble::new("is the image that is being used; not overwritten"));
        }
        if !stat.is_file() {
            // As cp(1): it waits for the reader of a pipe.
            let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
            return Ok(HostFile::new(file, Order::Stream, None));
        }
        let claim = (stat.nlink() > 1).then(|| self.writers.claim(stat.ino()));
        let order = if claim.is_some() { Order::OneWorker } else { Order::Any };
        let flags = flags | libc::O_NONBLOCK;
        let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
        // Whatever is there by now: only what was looked at is emptied.
        if id(&file.metadata()?) != id(stat) {
            return Err(Trouble::new("was replaced by another program while it was copied to"));
        }
        file.set_len(0)?;
        Ok(HostFile::new(file, order, claim))
    }
}

/// Attributes that hold access lists. An inherited one, or one of a file that is overwritten, goes
/// where the source has none: it could let others in.
const LISTS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

/// Sets the attributes of `meta` and removes access lists that it has not.
fn set_xattrs(
    meta: &Meta,
    set: impl Fn(&OsStr, &[u8]) -> rustix::io::Result<()>,
    remove: impl Fn(&str) -> rustix::io::Result<()>,
) -> Result<()> {
    let mut told = Ok(());
    let link = matches!(meta.kind, Kind::Symlink(_));
    let has = |list: &str| meta.xattrs.iter().any(|(name, _)| name == list.as_bytes());
    for list in LISTS.into_iter().filter(|list| !link && !has(list)) {
        match remove(list) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::ACCESS) => {}
            Err(error) => told = Err(Trouble::from(error).mild().at("removal of an access list")),
        }
    }
    for (name, value) in &meta.xattrs {
        let name = OsStr::from_bytes(name);
        told = Trouble::worse(told, attribute(name, set(name, value)));
    }
    told
}

/// What cp(1) -p does not mind when it is not run by root.
fn ignored(done: rustix::io::Result<()>) -> Result<()> {
    match done {
        Err(Errno::PERM) => Ok(()),
        done => Ok(done?),
    }
}

/// An attribute that this host does not have or that only root may set is left out.
fn attribute(name: &OsStr, done: rustix::io::Result<()>) -> Result<()> {
    match done {
        Err(Errno::OPNOTSUPP) => Ok(()),
        Err(Errno::PERM) if !name.as_bytes().starts_with(b"user.") => Ok(()),
        Err(error) => {
            Err(Trouble::from(error).mild().at(&format!("setxattr {}", show::path(name))))
        }
        Ok(()) => Ok(()),
    }
}

fn times(meta: &Meta) -> Timestamps {
    let spec = |t: DiskTime| Timespec { tv_sec: t.seconds, tv_nsec: t.nanos.into() };
    Timestamps { last_access: spec(meta.atime), last_modification: spec(meta.mtime) }
}

/// The path of `name` in `dir`.
fn join(dir: &HostDir, name: &[u8]) -> Result<PathBuf> {
    if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') || name.contains(&0) {
        let shown = name.escape_ascii();
        return Err(Trouble::new(format!("the name '{shown}' cannot be used on this host")));
    }
    Ok(dir.path.join(OsStr::from_bytes(name)))
}

/// Removes what stands in the way of a new file; directories stay.
fn clear(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path)? {
        stat if stat.is_dir() => Err(Trouble::new("cannot overwrite a directory with a file")),
        _ => Ok(fs::remove_file(path)?),
    }
}

/// Makes something at `path`, once more when something stood there.
fn replace(path: &Path, make: impl Fn() -> std::io::Result<()>) -> Result<()> {
    match make() {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            clear(path)?;
            Ok(make()?)
        }
        done => Ok(done?),
    }
}

impl Sink for HostSink {
    type Dir = HostDir;
    type Node = PathBuf;
    type File = HostFile;

    fn identity(&self, parent: &HostDir, name: &[u8]) -> Option<FileId> {
        let path = join(parent, name).ok()?;
        Some(id(&fs::symlink_metadata(path).ok()?))
    }

    fn make_dir(&self, parent: &HostDir, name: &[u8], meta: &Meta) -> Result<HostDir> {
        let path = join(parent, name)?;
        // Until it is finished only its owner needs to get in.
        let keep = if self.preserve { 0o700 } else { 0o1777 };
        // As cp(1), where the umask takes these bits of directories even if a default access list
        // applies.
        let kept = meta.plain_mode() & keep & !(self.umask & 0o022);
        let mode = u32::from(kept | 0o700);
        let made = match DirBuilder::new().mode(mode).create(&path) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                if !fs::symlink_metadata(&path)?.is_dir() {
                    return Err(Trouble::new("cannot overwrite a file with a directory"));
                }
                false
            }
            Err(error) => return Err(error.into()),
        };
        Ok(HostDir { path: path.into(), made, is_file: false })
    }

    fn finish_dir(&self, dir: &HostDir, meta: &Meta) -> Result<()> {
        let missing = 0o700 & !u32::from(meta.mode);
        if dir.made && !self.preserve && missing != 0 {
            // Keeps what the directory above gave it: set-group-id, an access list.
            let mode = fs::symlink_metadata(&dir.path)?.mode() & 0o7777 & !missing;
            fs::set_permissions(&dir.path, Permissions::from_mode(mode))?;
        }
        self.keep(&dir.path, meta)
    }

    fn create(
        &self,
        parent: &HostDir,
        name: &[u8],
        meta: &Meta,
        _data: &[Range<u64>],
    ) -> Result<Created<HostFile, PathBuf>> {
        if parent.is_file {
            let path = parent.path.to_path_buf();
            let file = self.open_old(&path, &fs::metadata(&path)?, 0)?;
            let order = file.order;
            return Ok(Created { file, node: path, order });
        }
        let path = join(parent, name)?;
        let keep = if self.preserve { 0o700 } else { 0o777 };
        let mode = u32::from(meta.mode & keep);
        let new = || OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
        let file = match new() {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let stat = fs::symlink_metadata(&path)?;
                if stat.is_dir() || stat.is_symlink() {
                    clear(&path)?;
                    HostFile::new(new()?, Order::Any, None)
                } else {
                    self.open_old(&path, &stat, libc::O_NOFOLLOW)?
                }
            }
            file => HostFile::new(file?, Order::Any, None),
        };
        let order = file.order;
        Ok(Created { file, node: path, order })
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
        if !self.preserve {
            return Ok(());
        }
        let file = &file.file;
        ignored(fchown(file, Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid))))?;
        file.set_permissions(Permissions::from_mode(u32::from(meta.mode)))?;
        let set = |name: &OsStr, value: &[u8]| fsetxattr(file, name, value, XattrFlags::empty());
        let told = set_xattrs(meta, set, |name| fremovexattr(file, name));
        futimens(file, &times(meta))?;
        told
    }

    fn special(&self, parent: &HostDir, name: &[u8], meta: &Meta) -> Result<Made<PathBuf>> {
        let path = join(parent, name)?;
        let node = |kind: FileType, device: DeviceNo| {
            let keep = if self.preserve { 0o700 } else { 0o7777 };
            let mode = Mode::from_raw_mode(u32::from(meta.plain_mode() & keep));
            let device = makedev(device.major, device.minor);
            replace(&path, || Ok(mknodat(CWD, &path, kind, mode, device)?))
        };
        match &meta.kind {
            Kind::Symlink(target) => {
                let target = OsStr::from_bytes(target);
                replace(&path, || std::os::unix::fs::symlink(target, &path))?;
            }
            Kind::Char(device) => node(FileType::CharacterDevice, *device)?,
            Kind::Block(device) => node(FileType::BlockDevice, *device)?,
            Kind::Fifo => node(FileType::Fifo, DeviceNo::default())?,
            Kind::Socket => node(FileType::Socket, DeviceNo::default())?,
            Kind::File | Kind::Dir => return Err(Trouble::new("is no special file")),
        }
        let told = self.keep(&path, meta);
        Ok((path, told))
    }

    fn link(&self, node: &PathBuf, parent: &HostDir, name: &[u8]) -> Result<()> {
        let path = join(parent, name)?;
        replace(&path, || fs::hard_link(node, &path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_component() {
        let dir = HostSink::dir(Path::new("/tmp"));
        for bad in [&b""[..], b".", b"..", b"a/b", b"/etc", b"a\0b"] {
            assert!(join(&dir, bad).is_err(), "{}", bad.escape_ascii());
        }
        assert_eq!(join(&dir, b"...").expect("an odd name"), Path::new("/tmp/..."));
    }
}
