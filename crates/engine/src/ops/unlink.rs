//! `unlink(2)` and `rmdir(2)`.

use nextent_ondisk::InodeNo;
use nextent_store::Handle;
use nextent_sync::{Arc, injected};

use super::{check_name, permission, touch_change, touch_dir};
use crate::error::{Error, Result};
use crate::inode::entries::Names;
use crate::inode::{Change, Inode, credits, truncate};
use crate::ops::Inodes;
use crate::{Cred, FileType};

impl Inodes {
    /// Removes a name of a file that is not a directory. The file is freed after its last name and
    /// its last [`release`](Self::release).
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsDir`], [`Error::Access`], [`Error::Perm`].
    pub fn unlink(&self, cred: &Cred, parent: InodeNo, name: &[u8]) -> Result<()> {
        self.remove_name(cred, parent, name, false)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`unlink`](Self::unlink), [`Error::NotDir`], [`Error::NotEmpty`].
    pub fn rmdir(&self, cred: &Cred, parent: InodeNo, name: &[u8]) -> Result<()> {
        self.remove_name(cred, parent, name, true)
    }

    fn remove_name(
        &self,
        cred: &Cred,
        parent: InodeNo,
        name: &[u8],
        directory: bool,
    ) -> Result<()> {
        self.fs.check_writable()?;
        check_name(name).map_err(|error| match name {
            b".." => Error::NotEmpty,
            _ => error,
        })?;
        let (child, synced) = self.attempt(|| {
            let dir = self.directory(parent)?;
            let _dir_guard = self.lock_directory(&dir)?;
            self.check_dir_change(cred, &dir)?;
            let names = Names::of(&self.fs, &dir);
            let child = names.child(name)?.ok_or_else(|| Error::NotFound)?;
            permission::may_remove_name(cred, &dir, &child)?;
            match (child.file_type() == Some(FileType::Directory), directory) {
                (true, false) => return Err(Error::IsDir),
                (false, true) => return Err(Error::NotDir),
                (true, true) => Names::of(&self.fs, &child).check_parent(&dir)?,
                _ => {}
            }
            let mut window = child.rw.write();
            // Again under the lock: flags may have been set meanwhile.
            permission::may_remove_name(cred, &dir, &child)?;
            if directory && !Names::of(&self.fs, &child).is_empty()? {
                return Err(Error::NotEmpty);
            }
            let fs = &self.fs;
            fs.complete_deferred_exclusive(&child)?;
            let low = injected("estimate-too-low");
            let h = fs.start(if low { 1 } else { credits::UNLINK })?;
            names.remove(&h, name)?;
            let gone = self.drop_name(&h, &dir, &child);
            touch_dir(fs, &h, &dir);
            if gone
                && !truncate::reap_within(fs, &h, &child, &mut window)?
                && !injected("orphan-forgotten")
            {
                fs.orphans.add(fs, &h, &child);
            }
            drop(h);
            Ok((Arc::clone(&child), self.sync_entries_if_flagged(&dir)))
        })?;
        // The name is removed, so the file is freed even if the removal cannot be made durable.
        let reaped = truncate::reap_if_gone(&self.fs, &child);
        self.report(synced).and(self.report(reaped))
    }

    /// Removes a name in `dir` from the count of `child`; both are locked exclusively. True if it
    /// was the last one: the caller must free the file or make it an orphan in the same handle.
    #[must_use]
    pub(super) fn drop_name(&self, h: &Handle<'_>, dir: &Arc<Inode>, child: &Arc<Inode>) -> bool {
        let fs = &self.fs;
        let is_dir = child.file_type() == Some(FileType::Directory);
        let left = child.change(h, Change::Names, |state| {
            let links = if is_dir { 0 } else { state.disk.links.saturating_sub(1) };
            state.disk.links = links;
            if is_dir {
                state.disk.size = 0;
            }
            touch_change(fs, state);
            links
        });
        if is_dir {
            self.remove_subdirectory(h, dir);
        }
        left == 0
    }
}
