//! From a name to an inode.
//!
//! A name that this core looked up before, in a directory that has not changed since, takes no
//! lock that others take and stores to no line that others read: see `inode::names`.

use nextent_ondisk::InodeNo;

use super::{NAME_MAX, permission};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::inode::entries::Names;
use crate::ops::Inodes;
use crate::{Access, Attr, Cred};

impl Inodes {
    /// The file that `name` means in the directory `parent`. `.` and `..` are names like others;
    /// the root is its own parent.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDir`], [`Error::Access`], [`Error::NameTooLong`].
    pub fn lookup(&self, cred: &Cred, parent: InodeNo, name: &[u8]) -> Result<Attr> {
        self.look_up(cred, parent, name, |file| super::attr(&self.fs, file))
    }

    /// What `tell` says of the file that `name` means, as [`lookup`](Self::lookup). It may be
    /// asked twice.
    pub(super) fn look_up<R>(
        &self,
        cred: &Cred,
        parent: InodeNo,
        name: &[u8],
        tell: impl Fn(&Inode) -> R,
    ) -> Result<R> {
        let known = self.fs.names.find(parent, name, |dir, file| {
            // A damaged volume may have a second name of a file that was freed with its first: the
            // entry decides what that is.
            let gone = file.is_some_and(|file| file.traits().is_free());
            let known = !gone && permission::may_pass(cred, dir);
            known.then(|| file.map(|file| tell(file)))
        });
        match known {
            Some(found) => found.ok_or_else(|| Error::NotFound),
            None => self.look_up_in_blocks(cred, parent, name, tell),
        }
    }

    #[cold]
    fn look_up_in_blocks<R>(
        &self,
        cred: &Cred,
        parent: InodeNo,
        name: &[u8],
        tell: impl Fn(&Inode) -> R,
    ) -> Result<R> {
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        let dir = self.directory(parent)?;
        let _guard = self.share_directory(&dir)?;
        self.tell(permission::may(&self.fs, cred, &dir, Access::EXECUTE))?;
        // Of a directory that was removed nothing is left but itself: its parent may be, too.
        if dir.traits().is_nameless() && name != b"." {
            return Err(Error::NotFound);
        }
        let names = Names::of(&self.fs, &dir);
        // A directory's names for itself and its parent end without a change of its entries: they
        // are not remembered.
        let file = match name {
            b"." => return Ok(tell(&dir)),
            b".." => {
                let parent = self.tell(names.parent())?;
                return Ok(tell(&*self.directory(parent)?));
            }
            _ => self.tell(names.child(name))?,
        };
        self.fs.names.note(&dir, name, file.as_ref());
        Ok(tell(&*file.ok_or_else(|| Error::NotFound)?))
    }
}
