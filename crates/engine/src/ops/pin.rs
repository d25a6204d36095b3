//! Pins: a server's clients know an inode by its number, so the number must not be reused.
//!
//! A client of a server (the kernel of a FUSE mount) names files by inode number, long after it
//! looked them up. Until the client forgets the number it must not become another file's, whatever
//! happens to the names. A pin ensures that, as an open does. Unlike an open it needs no
//! permission, does not affect the window for the file's growth, and does not keep the inode in
//! memory.

use nextent_ondisk::InodeNo;
use nextent_sync::Arc;
use nextent_sync::atomic::Ordering;

use crate::Attr;
use crate::error::{Error, Result};
use crate::inode::{Inode, truncate};
use crate::ops::Inodes;

impl Inodes {
    /// Pins the inode `ino` until [`unpin`](Self::unpin), with or without names, and returns its
    /// attributes. A caller that knows the file by name compares the generation.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is free.
    pub fn pin(&self, ino: InodeNo) -> Result<Attr> {
        let inode = self.inode(ino)?;
        // Counted first, as opens are: a thread that frees the file afterwards sees the count.
        inode.pins.fetch_add(1, Ordering::SeqCst);
        if inode.with(|state| state.free) {
            // The number may have been reused and the new file unlinked meanwhile: only this call
            // can free that file.
            if inode.pins.fetch_sub(1, Ordering::SeqCst) == 1 {
                self.reap(&inode)?;
            }
            return Err(Error::NotFound);
        }
        Ok(super::attr(&self.fs, &inode))
    }

    /// Removes `times` pins. The last one frees a file that has neither names nor opens, and drops
    /// the inode from memory if it is unused. Reads from the device only if it frees a file.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are fewer pins. Errors of freeing the file; the next open of the
    /// volume frees it then.
    pub fn unpin(&self, ino: InodeNo, times: u64) -> Result<()> {
        match self.fs.unpin(ino, times) {
            Err(()) => Err(Error::Invalid),
            Ok(None) => Ok(()),
            Ok(Some(inode)) => self.reap(&inode),
        }
    }

    fn reap(&self, inode: &Arc<Inode>) -> Result<()> {
        truncate::reap_if_gone(&self.fs, inode).map_err(|error| self.fs.report_error(error))
    }

    /// The pinned inodes. Visits all inodes in memory.
    #[must_use]
    pub fn pinned(&self) -> Vec<InodeNo> {
        self.fs.cache.pinned()
    }

    /// Whether a file without names is open or pinned, or still has blocks while it is being freed.
    /// Visits all inodes in memory.
    #[must_use]
    pub fn has_removed_files(&self) -> bool {
        let removed = |inode: &Inode| {
            inode.with(|state| state.disk.links == 0 && (!state.free || state.disk.blocks > 0))
        };
        !self.fs.cache.select(removed).is_empty()
    }

    /// Ends all opens and pins of files without names and frees these files, for a server that has
    /// lost its clients and is about to close the volume. No other call may run.
    ///
    /// # Errors
    /// As [`unpin`](Self::unpin); it frees the other files regardless.
    pub fn abandon(&self) -> Result<()> {
        let gone = |inode: &Inode| {
            inode.is_open_or_pinned() && inode.with(|state| state.disk.links == 0 && !state.free)
        };
        let mut outcome = Ok(());
        for inode in self.fs.cache.select(gone) {
            inode.opens.store(0, Ordering::SeqCst);
            inode.pins.store(0, Ordering::SeqCst);
            truncate::drop_window(&self.fs, &inode);
            let freed = truncate::reap_if_gone(&self.fs, &Arc::clone(&inode));
            outcome = outcome.and(freed.map_err(|error| self.fs.report_error(error)));
        }
        outcome
    }
}
