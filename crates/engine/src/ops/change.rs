//! Rules for every change of a file: complete deferred conversions, drop the rights of a program,
//! and sync files with the flag for that.

use nextent_ondisk::inode::flags;
use nextent_sync::Arc;

use crate::error::{Error, Result};
use crate::inode::{Inode, attributes, credits};
use crate::ops::Inodes;
use crate::{Cred, XattrMode};

impl Inodes {
    /// Prepares a change of a file's contents by the exclusive holder: completes deferred
    /// conversions and removes `security.capability`, whichever user changes the file. `[inode.rw]`
    /// is held exclusively, and no handle.
    pub(super) fn begin_change(&self, inode: &Arc<Inode>) -> Result<()> {
        // Under the lock, since the volume may have become read-only during the wait for it.
        self.fs.check_writable()?;
        self.fs.complete_deferred_exclusive(inode)?;
        if !attributes::has_capability(&self.fs, inode) {
            return Ok(());
        }
        let h = self.fs.start(credits::XATTR + credits::INODE)?;
        let (name, root) = (attributes::CAPABILITY, Cred::root());
        match attributes::set(&self.fs, &h, inode, name, None, XattrMode::Replace, &root) {
            Err(Error::NoData) => Ok(()),
            done => done,
        }
    }

    /// Makes a change of a file durable if the file has the flag for that. Not under a handle.
    pub(super) fn sync_if_flagged(&self, inode: &Arc<Inode>) -> Result<()> {
        match inode.snapshot().has_any(flags::SYNC) {
            true => self.sync_inode(inode, false),
            false => Ok(()),
        }
    }

    /// Makes a change of a directory's entries durable if the directory has a flag for that. Not
    /// under a handle; `[inode.rw]` may be held.
    pub(super) fn sync_entries_if_flagged(&self, dir: &Arc<Inode>) -> Result<()> {
        match dir.snapshot().has_any(flags::SYNC | flags::DIRSYNC) {
            true => self.sync_inode(dir, false),
            false => Ok(()),
        }
    }
}
