//! Reading the host.

use super::entry::{FileId, Kind, Meta, Xattr};
use super::{Result, Source, Trouble};
use nextent::{DeviceNo, DiskTime};
use rustix::fs::{SeekFrom, major, minor, seek};
use rustix::io::Errno;
use std::fs::{self, File, Metadata, OpenOptions};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
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
        node.display().to_string()
    }

    fn meta(&self, node: &PathBuf) -> Result<Meta> {
        let stat = fs::symlink_metadata(node)?;
        if self.avoid.contains(&id(&stat)) {
            return Err(Trouble::new("is the image that is being used; left out"));
        }
        let kind = kind(node, &stat)?;
        let xattrs = if self.xattrs { xattrs(node)? } else { Vec::new() };
        Ok(Meta {
            id: id(&stat),
            kind,
            mode: (stat.mode() & 0o7777) as u16,
            uid: stat.uid(),
            gid: stat.gid(),
            links: stat.nlink(),
            size: stat.size(),
            allocated: stat.blocks().saturating_mul(512),
            atime: DiskTime::new(stat.atime(), stat.atime_nsec() as u32),
            mtime: DiskTime::new(stat.mtime(), stat.mtime_nsec() as u32),
            xattrs,
        })
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
            match file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }
}

fn kind(path: &Path, stat: &Metadata) -> Result<Kind> {
    let device = || DeviceNo { major: major(stat.rdev()), minor: minor(stat.rdev()) };
    let of = stat.file_type();
    Ok(if of.is_file() {
        Kind::File
    } else if of.is_dir() {
        Kind::Dir
    } else if of.is_symlink() {
        Kind::Symlink(fs::read_link(path)?.into_os_string().into_vec())
    } else if of.is_char_device() {
        Kind::Char(device())
    } else if of.is_block_device() {
        Kind::Block(device())
    } else if of.is_fifo() {
        Kind::Fifo
    } else {
        Kind::Socket
    })
}

/// Whether an attribute belongs to the file rather than to the file system it lies on.
fn travels(name: &[u8]) -> bool {
    !name.starts_with(b"system.") || name.starts_with(b"system.posix_acl_")
}

fn xattrs(path: &Path) -> Result<Vec<Xattr>> {
    let mut buf = [0; XATTR_GUESS];
    let names = match rustix::fs::llistxattr(path, &mut buf[..]) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Ok(len) => buf[..len].to_vec(),
        Err(Errno::RANGE) => grow(|buf| rustix::fs::llistxattr(path, buf))?,
        Err(error) => return Err(Trouble::from(error).at("listxattr")),
    };
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty() && travels(name));
    let mut all = Vec::new();
    for name in names {
        let shown = std::ffi::OsStr::from_bytes(name);
        match grow(|buf| rustix::fs::lgetxattr(path, shown, buf)) {
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
