//! `syncfs(2)`, freezing and thawing.

use crate::error::{Error, Result};
use crate::ops::Inodes;

impl Inodes {
    /// Makes everything that was changed before durable.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io), [`Error::Aborted`](crate::Error::Aborted).
    pub fn sync(&self) -> Result<()> {
        match self.tell(self.fs.settle_all()) {
            Err(Error::ReadOnly) | Ok(()) => {}
            Err(error) => return Err(error),
        }
        match self.tell(self.fs.store.sync_all().map_err(Error::from)) {
            // Closed: all is durable.
            Err(Error::ReadOnly) => Ok(()),
            done => done,
        }
    }

    /// Makes everything durable and in place, then holds all changes back until
    /// [`thaw`](Self::thaw). Overwrites of allocated blocks are not held back.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn freeze(&self) -> Result<()> {
        self.tell(self.fs.settle_all())?;
        self.tell(self.fs.store.freeze().map_err(Error::from))
    }

    /// Lets changes go on.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) when the volume is not frozen.
    pub fn thaw(&self) -> Result<()> {
        if self.fs.store.thaw() { Ok(()) } else { Err(Error::Invalid) }
    }
}
