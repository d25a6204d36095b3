//! `link(2)`.

use nextent_ondisk::InodeNo;
use nextent_ondisk::inode::flags;

use super::create::LINK_MAX;
use super::{check_name, touch_change, touch_dir};
use crate::error::{Error, Result};
use crate::inode::entries::Names;
use crate::inode::{Change, credits};
use crate::ops::Inodes;
use crate::{Attr, Cred, FileType};

impl Inodes {
    /// Gives a file another name, or the first one if [`tmpfile`](Self::tmpfile) made it.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Perm`] for directories and for immutable and append-only files,
    /// [`Error::TooManyLinks`], [`Error::CrossDevice`] across projects, [`Error::NoKey`] in an
    /// encrypted directory.
    pub fn link(&self, cred: &Cred, ino: InodeNo, parent: InodeNo, name: &[u8]) -> Result<Attr> {
        self.fs.check_writable()?;
        check_name(name)?;
        self.attempt(|| {
            let fs = &self.fs;
            let dir = self.directory(parent)?;
            let inode = fs.inode(ino)?;
            let _dir_guard = self.lock_directory(&dir)?;
            let names = Names::of(fs, &dir);
            self.check_new_name(cred, &dir, &names, name)?;
            if inode.file_type() == Some(FileType::Directory) {
                return Err(Error::Perm);
            }
            let _guard = inode.rw.write();
            // Again under the lock: the number may have been reused.
            let kind = inode.file_type().ok_or_else(|| Error::NotFound)?;
            if kind == FileType::Directory {
                return Err(Error::Perm);
            }
            let (links, bits, project, free) = inode
                .with(|state| (state.disk.links, state.disk.flags, state.disk.project, state.free));
            if free || (links == 0 && inode.with(|s| s.orphan) == crate::inode::object::Orphan::No)
            {
                return Err(Error::NotFound);
            }
            if bits & (flags::IMMUTABLE | flags::APPEND) != 0 {
                return Err(Error::Perm);
            }
            if links >= LINK_MAX {
                return Err(Error::TooManyLinks);
            }
            names.check_key()?;
            let (dir_flags, dir_project) = dir.with(|s| (s.disk.flags, s.disk.project));
            if dir_flags & flags::PROJINHERIT != 0 && dir_project != project {
                return Err(Error::CrossDevice);
            }
            let h = fs.start(credits::link(names.insert_credits()))?;
            names.insert(&h, name, ino, kind)?;
            if links == 0 {
                fs.orphans.remove(fs, &h, &inode);
            }
            inode.change(&h, Change::Names, |state| {
                state.disk.links += 1;
                touch_change(fs, state);
            });
            touch_dir(fs, &h, &dir);
            drop(h);
            self.sync_entries_if_flagged(&dir)?;
            Ok(super::attr(fs, &inode))
        })
    }
}
