//! From a name to an inode.

use nextent_ondisk::InodeNo;

use super::{NAME_MAX, permission};
use crate::error::{Error, Result};
use crate::inode::entries;
use crate::volume::Volume;
use crate::{Access, Attr, Cred};

impl Volume {
    /// The file that `name` means in the directory `parent`. `.` and `..` are names like others;
    /// the root is its own parent.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDir`], [`Error::Access`], [`Error::NameTooLong`].
    pub fn lookup(&self, cred: &Cred, parent: InodeNo, name: &[u8]) -> Result<Attr> {
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        let dir = self.directory(parent)?;
        let _guard = self.share_directory(&dir)?;
        self.tell(permission::may(&self.fs, cred, &dir, Access::EXECUTE))?;
        let found = entries::lookup(&self.fs, &dir, name).map_err(|error| self.fs.met(error))?;
        let ino = found.ok_or(Error::NotFound)?;
        let inode = self.inode(ino)?;
        Ok(super::attr(&self.fs, &inode))
    }
}
