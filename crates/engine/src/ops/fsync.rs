//! `fsync(2)` and `fdatasync(2)`.

use nextent_ondisk::InodeNo;
use nextent_sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::volume::Volume;

impl Volume {
    /// Makes the file's data and inode durable.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io), [`Error::Aborted`](crate::Error::Aborted).
    pub fn fsync(&self, ino: InodeNo) -> Result<()> {
        self.sync_inode(&*self.inode(ino)?, false)
    }

    /// Makes the file's data durable, and of the inode what is needed to find it.
    ///
    /// # Errors
    /// As [`fsync`](Self::fsync).
    pub fn fdatasync(&self, ino: InodeNo) -> Result<()> {
        self.sync_inode(&*self.inode(ino)?, true)
    }

    /// [`fsync`](Self::fsync), or with `data_only` [`fdatasync`](Self::fdatasync), of an inode in
    /// hand.
    pub(super) fn sync_inode(&self, inode: &Inode, data_only: bool) -> Result<()> {
        let tid = inode.with(|state| if data_only { state.data_changed } else { state.changed });
        if let Some(tid) = tid
            && !self.fs.store.is_durable(tid)
        {
            self.tell(self.fs.store.commit(tid).map_err(Error::from))?;
        }
        // The commit has flushed the data, unless it was written after that one began.
        let flush = inode.unflushed.load(Ordering::Relaxed);
        self.fs.store.flushed(flush).map_err(Error::from)
    }
}
