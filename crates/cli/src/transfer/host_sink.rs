//! Writing to the host.
//!
//! Names come from images and streams that nobody vouches for: a name is one
//! component, and a link that exists in the target is replaced, not followed.

use super::entry::{Kind, Meta};
use super::{Result, Sink, Trouble};
use nextent::{DeviceNo, DiskTime};
use nextent_num::{must_fit, to_u64};
use nextent_sync::Arc;
use nextent_sync::atomic::{AtomicU64, Ordering};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chownat, fchown,
    fsetxattr, futimens, lsetxattr, makedev, mknodat, utimensat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Directories of the host.
pub(crate) struct HostSink {
    preserve: bool,
    umask: u16,
}

/// A directory of the target.
#[derive(Clone, Debug)]
pub(crate) struct HostDir {
    path: Arc<Path>,
    /// It was made by this copy.
    made: bool,
}

/// A file that is being written.
pub(crate) struct HostFile {
    file: File,
    /// How far it was written. Relaxed: read after all writers are done.
    end: AtomicU64,
}

impl HostSink {
    /// Owners, times, exact modes and attributes are kept if `preserve`. Reads the umask, which
    /// takes an instant without it: call it before threads start.
    pub(crate) fn new(preserve: bool) -> Self {
        let umask = rustix::process::umask(Mode::empty());
        rustix::process::umask(umask);
        Self { preserve, umask: must_fit(umask.as_raw_mode()) }
    }

    /// A directory that exists.
    pub(crate) fn dir(path: &Path) -> HostDir {
        HostDir { path: path.into(), made: false }
    }

    fn keep(&self, path: &Path, meta: &Meta) -> Result<()> {
        if !self.preserve {
            return Ok(());
        }
        let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
        ignored(chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW))?;
        let mut told = Ok(());
        for (name, value) in &meta.xattrs {
            let name = OsStr::from_bytes(name);
            told = told.and(attribute(name, lsetxattr(path, name, value, XattrFlags::empty())));
        }
        if !matches!(meta.kind, Kind::Symlink(_)) {
            fs::set_permissions(path, Permissions::from_mode(u32::from(meta.mode)))?;
        }
        utimensat(CWD, path, &times(meta), AtFlags::SYMLINK_NOFOLLOW)?;
        told
    }
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
            Err(Trouble::from(error).mild().at(&format!("setxattr {}", name.to_string_lossy())))
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

    fn make_dir(&self, parent: &HostDir, name: &[u8], meta: &Meta) -> Result<HostDir> {
        let path = join(parent, name)?;
        // Until it is finished only its owner needs to get in.
        let keep = if self.preserve { 0o700 } else { 0o777 };
        let mode = u32::from(meta.plain_mode() & keep | 0o700);
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
        Ok(HostDir { path: path.into(), made })
    }

    fn finish_dir(&self, dir: &HostDir, meta: &Meta) -> Result<()> {
        let wanted = meta.plain_mode() & !self.umask;
        if dir.made && !self.preserve && wanted & 0o700 != 0o700 {
            fs::set_permissions(&dir.path, Permissions::from_mode(u32::from(wanted)))?;
        }
        self.keep(&dir.path, meta)
    }

    fn create(
        &self,
        parent: &HostDir,
        name: &[u8],
        meta: &Meta,
        _data: &[Range<u64>],
    ) -> Result<(HostFile, PathBuf)> {
        let path = join(parent, name)?;
        let keep = if self.preserve { 0o700 } else { 0o777 };
        let mode = u32::from(meta.mode & keep);
        let new = || OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
        let file = match new() {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                if fs::symlink_metadata(&path)?.is_file() {
                    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
                    let mut old = OpenOptions::new();
                    old.write(true).truncate(true).custom_flags(flags).open(&path)?
                } else {
                    clear(&path)?;
                    new()?
                }
            }
            file => file?,
        };
        Ok((HostFile { file, end: AtomicU64::new(0) }, path))
    }

    fn write(&self, file: &HostFile, offset: u64, bytes: &[u8]) -> Result<()> {
        file.file.write_all_at(bytes, offset)?;
        file.end.fetch_max(offset + to_u64(bytes.len()), Ordering::Relaxed);
        Ok(())
    }

    fn finish(&self, file: &HostFile, meta: &Meta) -> Result<()> {
        if file.end.load(Ordering::Relaxed) < meta.size {
            file.file.set_len(meta.size)?;
        }
        if !self.preserve {
            return Ok(());
        }
        let file = &file.file;
        ignored(fchown(file, Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid))))?;
        let mut told = Ok(());
        for (name, value) in &meta.xattrs {
            let name = OsStr::from_bytes(name);
            let set = attribute(name, fsetxattr(file, name, value, XattrFlags::empty()));
            told = told.and(set);
        }
        file.set_permissions(Permissions::from_mode(u32::from(meta.mode)))?;
        futimens(file, &times(meta))?;
        told
    }

    fn special(&self, parent: &HostDir, name: &[u8], meta: &Meta) -> Result<PathBuf> {
        let path = join(parent, name)?;
        let node = |kind: FileType, device: DeviceNo| {
            let keep = if self.preserve { 0o700 } else { 0o777 };
            let mode = Mode::from_raw_mode(u32::from(meta.mode & keep));
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
        self.keep(&path, meta)?;
        Ok(path)
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
