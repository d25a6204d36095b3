//! `stat(2)`.

use nextent_ondisk::InodeNo;

use crate::Attr;
use crate::error::Result;
use crate::inode::Inode;
use crate::ops::Inodes;

impl Inodes {
    /// What is known of a file besides its contents.
    ///
    /// # Errors
    /// [`Error::NotFound`](crate::Error::NotFound) for a number that is not in use.
    pub fn getattr(&self, ino: InodeNo) -> Result<Attr> {
        let inode = self.inode(ino)?;
        Ok(super::attr(&self.fs, &inode))
    }

    /// [`getattr`](Self::getattr) of an inode in hand.
    pub(crate) fn attr_in(&self, inode: &Inode) -> Attr {
        super::attr(&self.fs, inode)
    }

    /// What is known of a file that was listed with the number `ino` in the directory `dir`: as
    /// [`getattr`](Self::getattr), but a number that no entry may have is damage.
    ///
    /// # Errors
    /// [`Error::NotFound`](crate::Error::NotFound) if it was removed since;
    /// [`Error::Corrupt`](crate::Error::Corrupt).
    pub fn getattr_listed(&self, dir: InodeNo, ino: InodeNo) -> Result<Attr> {
        self.tell(self.fs.check_named(dir, ino))?;
        self.getattr(ino)
    }
}
