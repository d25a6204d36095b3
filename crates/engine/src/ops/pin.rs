//! Pins: what a server's clients know by number stays what it is.
//!
//! A client of a server (the kernel of a FUSE mount) names files by inode number, long after it
//! looked them up. While it may, the number must not become another file's, whatever happens to
//! the names. A pin promises that, as an open does, but it costs no permission, leaves what is
//! set aside for the file's growth alone, and does not keep the inode in memory.

use nextent_ondisk::InodeNo;
use nextent_sync::Arc;
use nextent_sync::atomic::Ordering;

use crate::Attr;
use crate::error::{Error, Result};
use crate::inode::{Inode, truncate};
use crate::ops::Inodes;

impl Inodes {
    /// Keeps the inode `ino` until [`unpin`](Self::unpin), with names or without, and tells its
    /// attributes. The caller compares the generation if it knows the file by a name.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is free.
    pub fn pin(&self, ino: InodeNo) -> Result<Attr> {
        let inode = self.inode(ino)?;
        // Counted first, as opens are: a reaper that looks after this sees it.
        inode.pins.fetch_add(1, Ordering::SeqCst);
        if inode.with(|state| state.free) {
            // Another file may have come meanwhile and lost its names: only this call can free it.
            if inode.pins.fetch_sub(1, Ordering::SeqCst) == 1 {
                self.reap(&inode)?;
            }
            return Err(Error::NotFound);
        }
        Ok(super::attr(&self.fs, &inode))
    }

    /// Takes back `times` pins. With the last one goes a file that has neither names nor opens, and
    /// from memory an inode that nothing else needs there. Reads nothing from the device unless it
    /// frees a file.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are not as many; else what freeing says: the file is left to
    /// the next open of the volume then.
    pub fn unpin(&self, ino: InodeNo, times: u64) -> Result<()> {
        match self.fs.unpin(ino, times) {
            Err(()) => Err(Error::Invalid),
            Ok(None) => Ok(()),
            Ok(Some(inode)) => self.reap(&inode),
        }
    }

    fn reap(&self, inode: &Arc<Inode>) -> Result<()> {
        truncate::reap_if_gone(&self.fs, inode).map_err(|error| self.fs.met(error))
    }

    /// Ends all opens and pins of files without names and frees these: for a server that no
    /// client can reach any more, before it closes the volume. No other call may run.
    ///
    /// # Errors
    /// As [`unpin`](Self::unpin); the other files are freed all the same.
    pub fn abandon(&self) -> Result<()> {
        let gone = |inode: &Inode| {
            inode.is_held() && inode.with(|state| state.disk.links == 0 && !state.free)
        };
        let mut outcome = Ok(());
        for inode in self.fs.cache.select(gone) {
            inode.opens.store(0, Ordering::SeqCst);
            inode.pins.store(0, Ordering::SeqCst);
            truncate::drop_window(&self.fs, &inode);
            let freed = truncate::reap_if_gone(&self.fs, &Arc::clone(&inode));
            outcome = outcome.and(freed.map_err(|error| self.fs.met(error)));
        }
        outcome
    }
}
