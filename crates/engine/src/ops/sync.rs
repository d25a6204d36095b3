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
}
