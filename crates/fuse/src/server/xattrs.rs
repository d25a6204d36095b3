//! Extended attributes, which include access control lists.

use nextent::inodes::XattrMode;

use super::{Caller, Server};
use crate::errno::{Errno, Result, of_node};
use crate::node::inode;

impl Server {
    pub(crate) fn getxattr(&self, who: Caller, node: u64, name: &[u8]) -> Result<Vec<u8>> {
        self.volume.getxattr(&who.named(0), inode(node)?, name).map_err(of_node)
    }

    /// The names, each followed by a zero byte.
    pub(crate) fn listxattr(&self, who: Caller, node: u64) -> Result<Vec<u8>> {
        let names = self.volume.listxattr(&self.plain(who), inode(node)?).map_err(of_node)?;
        let mut list = Vec::new();
        for name in names {
            list.extend_from_slice(&name);
            list.push(0);
        }
        Ok(list)
    }

    pub(crate) fn setxattr(
        &self,
        who: Caller,
        node: u64,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Result<()> {
        let mode = match flags {
            0 => XattrMode::Either,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Errno(libc::EINVAL)),
        };
        self.volume.setxattr(&who.named(0), inode(node)?, name, value, mode).map_err(of_node)
    }

    pub(crate) fn removexattr(&self, who: Caller, node: u64, name: &[u8]) -> Result<()> {
        self.volume.removexattr(&who.named(0), inode(node)?, name).map_err(of_node)
    }
}
