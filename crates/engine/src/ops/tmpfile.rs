//! `O_TMPFILE`: a file that starts without a name.

use nextent_ondisk::InodeNo;
use nextent_sync::atomic::Ordering;

use super::permission;
use crate::error::Result;
use crate::inode::create::{NewInode, create};
use crate::inode::entries::Names;
use crate::inode::{Change, attributes, credits};
use crate::ops::Inodes;
use crate::{Access, Attr, Cred, FileType};

impl Inodes {
    /// Creates a regular file without a name near `parent`, opened once. [`link`](Self::link) may
    /// name it before the last [`release`](Self::release).
    ///
    /// # Errors
    /// As [`mknod`](Self::mknod).
    pub fn tmpfile(&self, cred: &Cred, parent: InodeNo, mode: u16) -> Result<Attr> {
        self.fs.check_writable()?;
        self.attempt(|| {
            let fs = &self.fs;
            let dir = self.directory(parent)?;
            let _guard = self.lock_directory_shared(&dir)?;
            permission::may(fs, cred, &dir, Access::CHANGE_DIR)?;
            Names::of(fs, &dir).check_key()?;
            let kind = FileType::Regular;
            let inherited = attributes::inherit(fs, &dir, kind, mode, cred.umask)?;
            let h = fs.start(credits::TMPFILE)?;
            // The link count is one until the file is open and an orphan. A thread that had an
            // earlier file of this number may still check whether to free that one, and would free
            // this one.
            let new = NewInode { cred, kind, mode: inherited.mode, links: 1, name: b"" };
            let inode = create(fs, &h, &dir, &new)?;
            inode.opens.fetch_add(1, Ordering::SeqCst);
            fs.orphans.add(fs, &h, &inode);
            inode.change(&h, Change::Names, |state| state.disk.links = 0);
            let given = attributes::set_inherited(fs, &h, &inode, &inherited);
            inode.finish_creation();
            drop(h);
            if let Err(error) = given {
                self.release(inode.ino)?;
                return Err(error);
            }
            Ok(super::attr(fs, &inode))
        })
    }
}
