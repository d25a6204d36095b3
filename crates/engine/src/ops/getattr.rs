//! `stat(2)`.

use nextent_ondisk::InodeNo;

use crate::Attr;
use crate::error::Result;
use crate::inode::Inode;
use crate::ops::Inodes;

impl Inodes {
    /// The attributes of a file.
    ///
    /// # Errors
    /// [`Error::NotFound`](crate::Error::NotFound) for a number that is not in use.
    pub fn getattr(&self, ino: InodeNo) -> Result<Attr> {
        let inode = self.inode(ino)?;
        Ok(super::attr(&self.fs, &inode))
    }

    /// [`getattr`](Self::getattr) of an inode that the caller has.
    pub(crate) fn attr_in(&self, inode: &Inode) -> Attr {
        super::attr(&self.fs, inode)
    }

    /// The attributes of a file that the directory `dir` lists with the number `ino`. Unlike
    /// [`getattr`](Self::getattr) it reports damage for a number that no entry may have.
    ///
    /// # Errors
    /// [`Error::NotFound`](crate::Error::NotFound) if it was removed since;
    /// [`Error::Corrupt`](crate::Error::Corrupt).
    pub fn getattr_listed(&self, dir: InodeNo, ino: InodeNo) -> Result<Attr> {
        self.report(self.fs.check_named(dir, ino))?;
        self.getattr(ino)
    }
}
