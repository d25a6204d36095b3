//! The model's tree, for comparison with another.

use super::ModelFs;
use super::node::{Body, Id, Node};
use crate::tree::{Kind, Stat, TreeSource};
use std::collections::BTreeMap;
use std::io;

impl ModelFs {
    fn look<R>(&self, id: Id, look: impl FnOnce(&Node) -> R) -> io::Result<R> {
        self.with(|state| state.nodes.get(&id).map(look))
            .ok_or_else(|| io::Error::other("the node is gone"))
    }
}

impl TreeSource for ModelFs {
    type Node = Id;

    fn root(&self) -> io::Result<Id> {
        Ok(0)
    }

    fn children(&self, dir: &Id) -> io::Result<Vec<(Vec<u8>, Id)>> {
        self.look(*dir, |node| {
            let names = node.names().map_err(io::Error::from_raw_os_error)?;
            Ok(names.iter().map(|(name, id)| (name.clone().into_bytes(), *id)).collect())
        })?
    }

    fn stat(&self, id: &Id) -> io::Result<Stat> {
        self.look(*id, |node| Stat {
            ino: *id as u64,
            kind: node.kind(),
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            nlink: node.links,
            size: match &node.body {
                Body::File(bytes) => bytes.len() as u64,
                Body::Symlink(target) => target.len() as u64,
                _ => 0,
            },
            mtime: node.mtime,
            rdev: match node.body {
                Body::Special(Kind::CharDevice | Kind::BlockDevice, rdev) => rdev,
                _ => (0, 0),
            },
        })
    }

    fn read(&self, id: &Id, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.look(*id, |node| {
            let bytes = node.bytes().map_err(io::Error::from_raw_os_error)?;
            let rest = &bytes[bytes.len().min(offset as usize)..];
            let len = rest.len().min(buf.len());
            buf[..len].copy_from_slice(&rest[..len]);
            Ok(len)
        })?
    }

    fn target(&self, id: &Id) -> io::Result<Vec<u8>> {
        self.look(*id, |node| match &node.body {
            Body::Symlink(target) => Ok(target.clone().into_bytes()),
            _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        })?
    }

    fn xattrs(&self, id: &Id) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        self.look(*id, |node| {
            node.xattrs.iter().map(|(n, v)| (n.clone().into_bytes(), v.clone())).collect()
        })
    }
}
