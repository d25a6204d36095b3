//! What every change of a file asks for beside the change itself: a map that says all, rights that
//! a written program loses, and changes that are durable when the call returns.

use nextent_ondisk::inode::flags;
use nextent_sync::Arc;

use crate::error::{Error, Result};
use crate::inode::{Inode, attributes, credits};
use crate::ops::Inodes;
use crate::{Cred, XattrMode};

impl Inodes {
    /// What comes before any change of a file's contents by who has it alone: the map is made to
    /// say all that was written, and `security.capability` is taken away, whoever changes the file.
    /// `[inode.rw]` is held exclusively, and no handle.
    pub(super) fn begin_change(&self, inode: &Arc<Inode>) -> Result<()> {
        self.fs.settle_alone(inode)?;
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

    /// Makes a change of a file durable if the file asks for that. Not under a handle.
    pub(super) fn keep_file(&self, inode: &Arc<Inode>) -> Result<()> {
        match inode.traits().has_any(flags::SYNC) {
            true => self.sync_inode(inode, false),
            false => Ok(()),
        }
    }

    /// Makes a change of a directory's entries durable if the directory asks for that. Not under
    /// a handle; `[inode.rw]` may be held.
    pub(super) fn keep_entries(&self, dir: &Arc<Inode>) -> Result<()> {
        match dir.traits().has_any(flags::SYNC | flags::DIRSYNC) {
            true => self.sync_inode(dir, false),
            false => Ok(()),
        }
    }
}
