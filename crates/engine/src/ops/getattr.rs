//! `stat(2)`.

use nextent_ondisk::InodeNo;

use crate::Attr;
use crate::error::Result;
use crate::volume::Volume;

impl Volume {
    /// What is known of a file besides its contents.
    ///
    /// # Errors
    /// [`Error::NotFound`](crate::Error::NotFound) for a number that is not in use.
    pub fn getattr(&self, ino: InodeNo) -> Result<Attr> {
        let inode = self.inode(ino)?;
        Ok(super::attr(&self.fs, &inode))
    }
}
