//! A volume as a tree for the testkit's walker.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use nextent::inodes::{InodeNo, Inodes, ROOT_INO, SeekKind};
use nextent::{Cred, Error, FileType};
use nextent_testkit::tree::{Kind, Stat, TreeSource};

/// A volume's whole tree.
pub struct VolumeTree<'v>(pub &'v Inodes);

fn io<T>(result: nextent::Result<T>) -> io::Result<T> {
    result.map_err(io::Error::other)
}

fn kind(kind: FileType) -> Kind {
    match kind {
        FileType::Regular => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        FileType::CharDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
    }
}

impl TreeSource for VolumeTree<'_> {
    type Node = InodeNo;

    fn root(&self) -> io::Result<InodeNo> {
        Ok(ROOT_INO)
    }

    fn children(&self, dir: &InodeNo) -> io::Result<Vec<(Vec<u8>, InodeNo)>> {
        let mut all = Vec::new();
        let mut cookie = 0;
        loop {
            // A few entries a call, so that the walk uses cookies.
            let mut taken = 0;
            io(self.0.readdir(*dir, cookie, &mut |entry| {
                if taken == 7 {
                    return false;
                }
                taken += 1;
                cookie = entry.next;
                if entry.name != b"." && entry.name != b".." {
                    all.push((entry.name.to_vec(), entry.ino));
                }
                true
            }))?;
            if taken == 0 {
                return Ok(all);
            }
        }
    }

    fn stat(&self, node: &InodeNo) -> io::Result<Stat> {
        let attr = io(self.0.getattr(*node))?;
        Ok(Stat {
            ino: u64::from(attr.ino.0),
            kind: kind(attr.kind),
            mode: u32::from(attr.mode),
            uid: attr.uid,
            gid: attr.gid,
            nlink: u64::from(attr.links),
            size: attr.size,
            mtime: (attr.mtime.seconds, attr.mtime.nanos),
            rdev: (attr.device.major, attr.device.minor),
        })
    }

    fn read(&self, node: &InodeNo, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        io(self.0.read(*node, offset, buf))
    }

    fn target(&self, node: &InodeNo) -> io::Result<Vec<u8>> {
        io(self.0.readlink(*node))
    }

    fn xattrs(&self, node: &InodeNo) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        let root = Cred::root();
        let mut all = BTreeMap::new();
        for name in io(self.0.listxattr(&root, *node))? {
            let value = io(self.0.getxattr(&root, *node, &name))?;
            all.insert(name, value);
        }
        Ok(all)
    }

    fn data(&self, node: &InodeNo, size: u64) -> io::Result<Option<Vec<Range<u64>>>> {
        let mut ranges = Vec::new();
        let mut at = 0;
        while at < size {
            let start = match self.0.seek(*node, at, SeekKind::Data) {
                Err(Error::NoData) => break,
                start => io(start)?,
            };
            at = io(self.0.seek(*node, start, SeekKind::Hole))?;
            ranges.push(start..at);
        }
        Ok(Some(ranges))
    }
}
