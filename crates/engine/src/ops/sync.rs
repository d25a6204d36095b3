//! `syncfs(2)`, freezing and thawing.

use crate::error::{Error, Result};
use crate::ops::Inodes;

impl Inodes {
    /// Makes every earlier change durable.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io), [`Error::Aborted`](crate::Error::Aborted).
    pub fn sync(&self) -> Result<()> {
        match self.report(self.fs.complete_all_deferred()) {
            Err(Error::ReadOnly) | Ok(()) => {}
            Err(error) => return Err(error),
        }
        match self.report(self.fs.store.sync_all().map_err(Error::from)) {
            // The volume is closed: everything is durable.
            Err(Error::ReadOnly) => Ok(()),
            done => done,
        }
    }

    /// Makes everything durable and in place, then blocks all changes until [`thaw`](Self::thaw).
    /// Overwrites of allocated blocks are not blocked.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn freeze(&self) -> Result<()> {
        self.report(self.fs.complete_all_deferred())?;
        self.report(self.fs.store.freeze().map_err(Error::from))
    }

    /// Unblocks changes.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) when the volume is not frozen.
    pub fn thaw(&self) -> Result<()> {
        if self.fs.store.thaw() { Ok(()) } else { Err(Error::Invalid) }
    }

    /// Ends all changes without another commit, as a crash would: the next open of the volume
    /// replays the journal. Later changes fail with [`Error::ReadOnly`](crate::Error::ReadOnly).
    ///
    /// # Errors
    /// None at present.
    pub fn stop(&self) -> Result<()> {
        self.close_once(|| {
            self.fs.set_read_only();
            self.fs.store.stop();
            Ok(())
        })
    }
}
