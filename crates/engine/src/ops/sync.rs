//! `syncfs(2)`, freezing and thawing.

use crate::error::Result;
use crate::volume::Volume;

impl Volume {
    /// Makes everything that was changed before durable.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io), [`Error::Aborted`](crate::Error::Aborted).
    pub fn sync(&self) -> Result<()> {
        if self.fs.is_read_only() {
            return Ok(());
        }
        Ok(self.fs.store.sync_all()?)
    }

    /// Makes everything durable and in place, then holds all changes back until
    /// [`thaw`](Self::thaw). Overwrites of allocated blocks are not held back.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn freeze(&self) -> Result<()> {
        Ok(self.fs.store.freeze()?)
    }

    /// Lets changes go on.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) when the volume is not frozen.
    pub fn thaw(&self) -> Result<()> {
        if self.fs.store.thaw() { Ok(()) } else { Err(crate::Error::Invalid) }
    }
}
