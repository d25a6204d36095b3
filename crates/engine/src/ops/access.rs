//! `access(2)` for a given user.

use nextent_ondisk::InodeNo;

use super::permission;
use crate::error::Result;
use crate::ops::Inodes;
use crate::{Access, Cred};

impl Inodes {
    /// Whether `cred` has the access `want` to the file.
    ///
    /// # Errors
    /// [`Error::Access`](crate::Error::Access), [`Error::Perm`](crate::Error::Perm),
    /// [`Error::ReadOnly`](crate::Error::ReadOnly).
    pub fn access(&self, cred: &Cred, ino: InodeNo, want: Access) -> Result<()> {
        let inode = self.inode(ino)?;
        self.report(permission::may(&self.fs, cred, &inode, want))
    }
}
