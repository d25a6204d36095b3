//! A directory of the host, mostly one of a kernel mount.

use super::{Kind, Stat, TreeSource};
use rustix::fs::{SeekFrom, seek};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A directory of the host as a [`TreeSource`].
#[derive(Clone, Debug)]
pub struct HostDir(PathBuf);

impl HostDir {
    /// The tree below `path`.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self(path.as_ref().into())
    }
}

impl TreeSource for HostDir {
    type Node = PathBuf;

    fn root(&self) -> io::Result<PathBuf> {
        Ok(self.0.clone())
    }

    fn children(&self, dir: &PathBuf) -> io::Result<Vec<(Vec<u8>, PathBuf)>> {
        let mut children = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            children.push((entry.file_name().as_bytes().to_vec(), entry.path()));
        }
        Ok(children)
    }

    fn stat(&self, node: &PathBuf) -> io::Result<Stat> {
        let meta = fs::symlink_metadata(node)?;
        let kind = Kind::of_mode(meta.mode()).ok_or_else(|| io::Error::other("unknown type"))?;
        let device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        let rdev = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
        Ok(Stat {
            ino: meta.ino(),
            kind,
            mode: meta.mode() & 0o7777,
            uid: meta.uid(),
            gid: meta.gid(),
            nlink: meta.nlink(),
            size: meta.size(),
            mtime: (meta.mtime(), meta.mtime_nsec() as u32),
            rdev: if device { rdev } else { (0, 0) },
        })
    }

    fn read(&self, node: &PathBuf, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        File::open(node)?.read_at(buf, offset)
    }

    fn target(&self, node: &PathBuf) -> io::Result<Vec<u8>> {
        Ok(fs::read_link(node)?.into_os_string().into_vec())
    }

    fn xattrs(&self, node: &PathBuf) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        xattrs(node)
    }

    fn data(&self, node: &PathBuf, size: u64) -> io::Result<Option<Vec<Range<u64>>>> {
        let file = File::open(node)?;
        let mut ranges = Vec::new();
        let mut at = 0;
        while at < size {
            let start = match seek(&file, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(rustix::io::Errno::NXIO) => break,
                Err(error) => return Err(error.into()),
            };
            let end = seek(&file, SeekFrom::Hole(start))?;
            ranges.push(start..end);
            at = end;
        }
        Ok(Some(ranges))
    }
}

/// All extended attributes of a path; of the link itself if it is a symbolic link.
pub(crate) fn xattrs(path: &Path) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut names = vec![0; 65536];
    let len = match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(len) => len,
        Err(rustix::io::Errno::OPNOTSUPP) => return Ok(BTreeMap::new()),
        Err(error) => return Err(error.into()),
    };
    let mut all = BTreeMap::new();
    for name in names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 65536];
        let len = rustix::fs::lgetxattr(path, name, &mut value[..])?;
        value.truncate(len);
        all.insert(name.to_vec(), value);
    }
    Ok(all)
}
