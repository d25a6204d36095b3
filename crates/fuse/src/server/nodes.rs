//! Attributes of nodes, symbolic links' targets, and what is true of the whole volume.

use nextent::{Attr, DiskTime, SetAttr, SetTime, Statfs};

use super::{Caller, Server};
use crate::errno::{Result, of_node};
use crate::node::inode;

/// What is to be changed, as the protocol says it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<SetTime>,
    pub(crate) mtime: Option<SetTime>,
    pub(crate) ctime: Option<DiskTime>,
}

impl Server {
    /// What `stat` tells.
    pub(crate) fn getattr(&self, node: u64) -> Result<Attr> {
        self.volume.getattr(inode(node)?).map_err(of_node)
    }

    /// Changes attributes.
    pub(crate) fn setattr(&self, who: Caller, node: u64, change: &Change) -> Result<Attr> {
        let set = SetAttr {
            mode: change.mode.map(|mode| (mode & 0o7777) as u16),
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

    /// The text of a symbolic link.
    pub(crate) fn readlink(&self, node: u64) -> Result<Vec<u8>> {
        self.volume.readlink(inode(node)?).map_err(of_node)
    }

    /// What `statfs` tells.
    pub(crate) fn statfs(&self) -> Result<Statfs> {
        let mut told = self.volume.statfs()?;
        if self.how.minix_df {
            told.blocks = self.volume.geometry().blocks_count;
        }
        Ok(told)
    }
}
