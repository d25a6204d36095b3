//! `fsync(2)` and `fdatasync(2)`.

use nextent_ondisk::{InodeNo, Tid};
use nextent_sync::Arc;
use nextent_sync::atomic::Ordering;

use crate::FileType;
use crate::error::{Error, Result};
use crate::inode::{Inode, fast};
use crate::ops::Inodes;

impl Inodes {
    /// Makes the file's data and inode durable.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io), [`Error::Aborted`](crate::Error::Aborted).
    pub fn fsync(&self, ino: InodeNo) -> Result<()> {
        self.sync_inode(&self.inode(ino)?, false)
    }

    /// Makes the file's data durable, and the part of the inode that is needed to find it.
    ///
    /// # Errors
    /// As [`fsync`](Self::fsync).
    pub fn fdatasync(&self, ino: InodeNo) -> Result<()> {
        self.sync_inode(&self.inode(ino)?, true)
    }

    /// [`fsync`](Self::fsync), or with `data_only` [`fdatasync`](Self::fdatasync), of an inode that
    /// the caller has. The data of a directory is its names, so there both do the same.
    pub(crate) fn sync_inode(&self, inode: &Arc<Inode>, data_only: bool) -> Result<()> {
        self.report(self.fs.complete_deferred(inode))?;
        let data_only = data_only && inode.file_type() != Some(FileType::Directory);
        if let Some(tid) = inode.unsynced(data_only)
            && !self.fs.store.is_durable(tid)
            && !self.report(self.sync_fast(inode, tid))?
        {
            self.report(self.fs.store.commit(tid).map_err(Error::from))?;
        }
        // The commit has flushed the data, unless that was written after the commit began.
        let flush = inode.unflushed.load(Ordering::Relaxed);
        self.fs.store.flushed(flush).map_err(Error::from)
    }

    /// Makes the inode durable by a fast commit of `tid`, the transaction of its last change. False
    /// if a full commit is needed.
    fn sync_fast(&self, inode: &Arc<Inode>, tid: Tid) -> Result<bool> {
        if self.fs.store.fast_tid() != Some(tid) {
            if inode.has_only_contents_changed(tid) {
                self.fs.store.allow_fast();
            }
            return Ok(false);
        }
        // The lock keeps other threads from unmapping blocks until the records are written. If it
        // is held, its holder is about to change the file, or is the caller.
        let Some(_guard) = inode.rw.try_read() else { return Ok(false) };
        let Some(records) = fast::records(&self.fs, inode, tid)? else { return Ok(false) };
        // The data that the records refer to must be durable before them.
        let data = self.fs.store.next_flush();
        let done = self.fs.store.commit_fast(tid, records.list, data)?;
        if done {
            inode.set_synced(records.change);
        }
        Ok(done)
    }
}
