//! Looking up a name in a directory.
//!
//! A name that the caller's slot has looked up before, in a directory that has not changed since,
//! takes no shared lock and makes no shared store: see `inode::name_cache`.

use nextent_ondisk::InodeNo;

use super::{NAME_MAX, permission};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::inode::entries::Names;
use crate::ops::Inodes;
use crate::{Access, Attr, Cred};

impl Inodes {
    /// The file that `name` refers to in the directory `parent`. `.` and `..` are ordinary names;
    /// the root is its own parent.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDir`], [`Error::Access`], [`Error::NameTooLong`].
    pub fn lookup(&self, cred: &Cred, parent: InodeNo, name: &[u8]) -> Result<Attr> {
        self.look_up(cred, parent, name, |file| super::attr(&self.fs, file))
    }

    /// The result of `read` for the file that `name` refers to, as [`lookup`](Self::lookup). `read`
    /// may be called twice.
    pub(super) fn look_up<R>(
        &self,
        cred: &Cred,
        parent: InodeNo,
        name: &[u8],
        read: impl Fn(&Inode) -> R,
    ) -> Result<R> {
        let known = self.fs.name_cache.find(parent, name, |dir, file| {
            // A damaged volume may have a second name for a file that was freed with its first one.
            // The entry decides what that is.
            let gone = file.is_some_and(|file| file.snapshot().is_free());
            let known = !gone && permission::may_pass(cred, dir);
            known.then(|| file.map(|file| read(file)))
        });
        match known {
            Some(found) => found.ok_or_else(|| Error::NotFound),
            None => self.look_up_in_blocks(cred, parent, name, read),
        }
    }

    #[cold]
    fn look_up_in_blocks<R>(
        &self,
        cred: &Cred,
        parent: InodeNo,
        name: &[u8],
        read: impl Fn(&Inode) -> R,
    ) -> Result<R> {
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        let dir = self.directory(parent)?;
        let _guard = self.lock_directory_shared(&dir)?;
        self.report(permission::may(&self.fs, cred, &dir, Access::EXECUTE))?;
        // A removed directory has no entries; its parent may be removed too.
        if dir.snapshot().is_unlinked() && name != b"." {
            return Err(Error::NotFound);
        }
        let names = Names::of(&self.fs, &dir);
        // Removing a directory ends its `.` and `..` without a change of its entries, so these two
        // are not cached.
        let file = match name {
            b"." => return Ok(read(&dir)),
            b".." => {
                let parent = self.report(names.parent())?;
                return Ok(read(&*self.directory(parent)?));
            }
            _ => self.report(names.child(name))?,
        };
        self.fs.name_cache.note(&dir, name, file.as_ref());
        Ok(read(&*file.ok_or_else(|| Error::NotFound)?))
    }
}
