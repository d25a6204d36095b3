//! Reading the host.

use super::entry::{FileId, Kind, Meta, Xattr};
use super::{Result, Source, Trouble};
use crate::show;
use nextent::{DeviceNo, DiskTime};
use nextent_num::{must_fit, to_u64};
use rustix::fs::{
    AtFlags, CWD, FileType, SeekFrom, Stat, fgetxattr, flistxattr, lgetxattr, llistxattr, major,
    minor, readlinkat, seek, statat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// First guess at the length of attributes.
const XATTR_GUESS: usize = 1024;

/// The host's files.
pub(crate) struct HostSource {
    /// Whether attributes are read.
    xattrs: bool,
    /// Images in use: copying one into itself would not end well.
    avoid: Vec<FileId>,
}

impl HostSource {
    /// The host's files, with their extended attributes if `xattrs`, without those in `avoid`.
    pub(crate) fn new(xattrs: bool, avoid: Vec<FileId>) -> Self {
        Self { xattrs, avoid }
    }
}

/// The identity of a file of the host.
pub(crate) fn id(meta: &Metadata) -> FileId {
    FileId { volume: meta.dev(), ino: meta.ino() }
}

impl Source for HostSource {
    type Node = PathBuf;
    type File = File;

    fn show(&self, node: &PathBuf) -> String {
        show::path(node)
    }

    fn meta(&self, node: &PathBuf) -> Result<Meta> {
        let stat = statat(CWD, node, AtFlags::SYMLINK_NOFOLLOW)?;
        attributes(self, At::Path(node), &stat)
    }

    fn list(&self, dir: &PathBuf, each: &mut dyn FnMut(Vec<u8>, PathBuf)) -> Result<()> {
        for entry in fs::read_dir(dir)? {
            let name = entry?.file_name();
            let path = dir.join(&name);
            each(name.into_vec(), path);
        }
        Ok(())
    }

    fn open(&self, node: &PathBuf) -> Result<File> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        Ok(OpenOptions::new().read(true).custom_flags(flags).open(node)?)
    }

    fn data(&self, file: &File, meta: &Meta) -> Result<Vec<Range<u64>>> {
        if meta.allocated >= meta.size {
            return Ok(meta.whole());
        }
        let mut ranges = Vec::new();
        let mut at = 0;
        while at < meta.size {
            let start = match seek(file, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => break,
                // A file system that knows no holes.
                Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(meta.whole()),
                Err(error) => return Err(error.into()),
            };
            let end = seek(file, SeekFrom::Hole(start))?.min(meta.size);
            if end <= start {
                break;
            }
            ranges.push(start..end);
            at = end;
        }
        Ok(ranges)
    }

    fn read(&self, file: &File, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match file.read_at(&mut buf[done..], offset + to_u64(done)) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }
}

/// How a file is asked for what its `stat` does not say.
#[derive(Clone, Copy)]
pub(super) enum At<'a> {
    File(&'a File),
    /// Not through a link.
    Path(&'a Path),
}

/// What `stat` and the attributes of a file say.
pub(super) fn attributes(source: &HostSource, at: At<'_>, stat: &Stat) -> Result<Meta> {
    let id = FileId { volume: must_fit(stat.st_dev), ino: must_fit(stat.st_ino) };
    if source.avoid.contains(&id) {
        return Err(Trouble::new("is the image that is being used; left out"));
    }
    let kind = kind(at, stat)?;
    // A file system in user space may say anything.
    let size = u64::try_from(stat.st_size).map_err(|_| Trouble::new("has a negative size"))?;
    let nanos = |nanos: i128| u32::try_from(nanos).unwrap_or(0);
    let xattrs = if source.xattrs { xattrs(at)? } else { Vec::new() };
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
        mtime: DiskTime::new(stat.st_mtime, nanos(stat.st_mtime_nsec.into())),
        xattrs,
    })
}

fn kind(at: At<'_>, stat: &Stat) -> Result<Kind> {
    let device = || DeviceNo { major: major(stat.st_rdev), minor: minor(stat.st_rdev) };
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => match at {
            At::Path(path) => Kind::Symlink(readlinkat(CWD, path, Vec::new())?.into_bytes()),
            At::File(_) => return Err(Trouble::new("changed while it was read")),
        },
        FileType::CharacterDevice => Kind::Char(device()),
        FileType::BlockDevice => Kind::Block(device()),
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::Unknown => return Err(Trouble::new("is of no type that can be copied")),
    })
}

/// Whether an attribute belongs to the file rather than to the file system it lies on.
fn travels(name: &[u8]) -> bool {
    !name.starts_with(b"system.") || name.starts_with(b"system.posix_acl_")
}

fn xattrs(at: At<'_>) -> Result<Vec<Xattr>> {
    let list = |buf: &mut [u8]| match at {
        At::File(file) => flistxattr(file, buf),
        At::Path(path) => llistxattr(path, buf),
    };
    // Most files have none, and those that have some have few.
    let mut buf = [0; 256];
    let names = match list(&mut buf[..]) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Ok(len) => buf[..len].to_vec(),
        Err(Errno::RANGE) => grow(list)?,
        Err(error) => return Err(Trouble::from(error).at("listxattr")),
    };
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty() && travels(name));
    let mut all = Vec::new();
    for name in names {
        let shown = OsStr::from_bytes(name);
        let get = |buf: &mut [u8]| match at {
            At::File(file) => fgetxattr(file, shown, buf),
            At::Path(path) => lgetxattr(path, shown, buf),
        };
        match grow(get) {
            Ok(value) => all.push((name.to_vec(), value)),
            // It went away meanwhile.
            Err(Errno::NODATA) => {}
            Err(error) => return Err(Trouble::from(error).at("getxattr")),
        }
    }
    all.sort();
    Ok(all)
}

/// What `get` puts into a buffer that is long enough.
fn grow(get: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut buf = vec![0; XATTR_GUESS];
    loop {
        match get(&mut buf) {
            Ok(len) => {
                buf.truncate(len);
                return Ok(buf);
            }
            // The largest list and value that Linux knows are 64 KiB.
            Err(Errno::RANGE) if buf.len() < 1 << 20 => buf = vec![0; buf.len() * 8],
            Err(error) => return Err(error),
        }
    }
}
