//! Attributes of nodes, targets of symbolic links, and properties of the volume.

use nextent::inodes::{Attr, SetAttr, SetTime};
use nextent::{DiskTime, Statfs};
use nextent_num::must_fit;

use super::{Caller, Server};
use crate::errno::{Result, of_node};
use crate::node::inode;

/// A change of attributes, in the protocol's types.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<SetTime>,
    pub(crate) mtime: Option<SetTime>,
    pub(crate) ctime: Option<DiskTime>,
    /// A change of the size removes set-id bits: the caller lacks CAP_FSETID.
    pub(crate) kill_set_id: bool,
}

impl Server {
    pub(crate) fn getattr(&self, node: u64) -> Result<Attr> {
        self.volume.getattr(inode(node)?).map_err(of_node)
    }

    pub(crate) fn setattr(&self, who: Caller, node: u64, change: &Change) -> Result<Attr> {
        let mut change = *change;
        if change.size.is_some() && change.kill_set_id && change.mode.is_none() {
            change.mode = self.stripped(node)?;
        }
        let set = SetAttr {
            mode: change.mode.map(|mode| must_fit(mode & 0o7777)),
            uid: change.uid,
            gid: change.gid,
            size: change.size,
            atime: change.atime,
            mtime: change.mtime,
            ctime: change.ctime,
            ..SetAttr::default()
        };
        self.volume.setattr(&who.named(0), inode(node)?, &set).map_err(of_node)
    }

    /// The mode of a file without the set-id bits that a change of its contents removes; none if it
    /// has none.
    fn stripped(&self, node: u64) -> Result<Option<u32>> {
        let mode = u32::from(self.getattr(node)?.mode);
        let runs_as_group = mode & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID | libc::S_IXGRP;
        let lost = mode & libc::S_ISUID | if runs_as_group { libc::S_ISGID } else { 0 };
        Ok((lost != 0).then_some(mode & !lost))
    }

    /// The target of a symbolic link.
    pub(crate) fn readlink(&self, node: u64) -> Result<Vec<u8>> {
        let ino = inode(node)?;
        let target = self.volume.readlink(ino).map_err(of_node)?;
        self.touch(ino);
        Ok(target)
    }

    pub(crate) fn statfs(&self) -> Result<Statfs> {
        let mut statfs = self.volume.statfs()?;
        if self.how.minix_df {
            statfs.blocks = self.volume.geometry().blocks_count;
        }
        Ok(statfs)
    }
}
