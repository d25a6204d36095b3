//! Extended attributes, which include access control lists.

use nextent::Cred;
use nextent::inodes::XattrMode;

use super::{Caller, Server};
use crate::errno::{Errno, Result, of_node};
use crate::node::inode;

/// How to set an extended attribute.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SettingXattr {
    /// `XATTR_CREATE`, `XATTR_REPLACE` or neither.
    pub(crate) flags: i32,
    /// An access control list removes the set-group bit: the caller neither belongs to the file's
    /// group nor has CAP_FSETID.
    pub(crate) kill_set_group: bool,
}

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
        how: SettingXattr,
    ) -> Result<()> {
        let mode = match how.flags {
            0 => XattrMode::Either,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Errno(libc::EINVAL)),
        };
        let mut cred = who.named(0);
        if how.kill_set_group && !self.admission().everyone_may {
            // The kernel has checked that the caller may do what the owner may. No file belongs to
            // this group.
            let uid = self.getattr(node)?.uid;
            cred = Cred { uid, gid: u32::MAX, privileged: false, ..cred };
        }
        self.volume.setxattr(&cred, inode(node)?, name, value, mode).map_err(of_node)
    }

    pub(crate) fn removexattr(&self, who: Caller, node: u64, name: &[u8]) -> Result<()> {
        self.volume.removexattr(&who.named(0), inode(node)?, name).map_err(of_node)
    }
}
