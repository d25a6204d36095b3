//! Listing a directory.

use nextent_ondisk::InodeNo;
use nextent_sync::injected;

use crate::attr::DirEntry;
use crate::error::Result;
use crate::inode::entries::Names;
use crate::ops::Inodes;

impl Inodes {
    /// Calls `each` with the entries after `cookie` (0 for the start, else an entry's `next`) until
    /// it returns false or there are no more. An entry that exists during the whole iteration comes
    /// exactly once, whatever else changes. A directory that was removed while it is open has no
    /// entries.
    ///
    /// `each` runs while the directory is locked shared: it must not change this directory.
    ///
    /// # Errors
    /// [`Error::NotDir`](crate::Error::NotDir), damaged blocks.
    pub fn readdir(
        &self,
        ino: InodeNo,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let dir = self.directory(ino)?;
        let _guard = self.lock_directory_shared(&dir)?;
        // Its size is zero, but its blocks, which may have an index, are not yet freed.
        if dir.snapshot().is_unlinked() && !injected("removed-directory-listed") {
            return Ok(());
        }
        Names::of(&self.fs, &dir).iterate(cookie, each).map_err(|error| self.fs.report_error(error))
    }
}
