//! Opens are counted: a file without a name exists until its last open is released.

use nextent_ondisk::InodeNo;
use nextent_ondisk::inode::flags;
use nextent_sync::Arc;
use nextent_sync::atomic::Ordering;

use super::permission;
use crate::error::{Error, Result};
use crate::inode::{Inode, truncate};
use crate::ops::Inodes;
use crate::{Access, Cred, FileType};

impl Inodes {
    /// Opens a file or directory: checks permissions and keeps the inode until
    /// [`release`](Self::release).
    ///
    /// # Errors
    /// [`Error::Access`], [`Error::IsDir`] for writing to a directory, [`Error::ReadOnly`],
    /// [`Error::NoKey`] for an encrypted file, [`Error::Perm`] for writing to an immutable file or
    /// one with fs-verity.
    pub fn open_file(&self, cred: &Cred, ino: InodeNo, want: Access) -> Result<()> {
        self.open_inode(cred, ino, want).map(|_| ())
    }

    /// [`open_file`](Self::open_file), but returns the inode.
    pub(crate) fn open_inode(&self, cred: &Cred, ino: InodeNo, want: Access) -> Result<Arc<Inode>> {
        let inode = self.inode(ino)?;
        // Counted first: a thread that frees the file either sees the count, or has marked the
        // inode free before. So the checks below apply to the file that is then open.
        inode.opens.fetch_add(1, Ordering::SeqCst);
        let checked = match inode.snapshot().is_free() {
            true => Err(Error::NotFound),
            false => self.may_open(cred, &inode, want),
        };
        if let Err(error) = checked {
            self.release_inode(&inode)?;
            return Err(error);
        }
        Ok(inode)
    }

    fn may_open(&self, cred: &Cred, inode: &Inode, want: Access) -> Result<()> {
        if want.write && inode.file_type() == Some(FileType::Directory) {
            return Err(Error::IsDir);
        }
        self.report(permission::may(&self.fs, cred, inode, want))?;
        if inode.file_type() == Some(FileType::Regular) {
            // Not part of `may`: Linux lets such a writer set times, for example.
            if want.write && inode.snapshot().has_any(flags::VERITY) {
                return Err(Error::Perm);
            }
            self.check_regular(inode)
        } else {
            Ok(())
        }
    }

    /// Ends one open. The last one frees a file that has no name.
    ///
    /// # Errors
    /// Errors of freeing the file; the next open of the volume frees it then.
    pub fn release(&self, ino: InodeNo) -> Result<()> {
        self.release_inode(&self.fs.any_inode(ino)?)
    }

    /// [`release`](Self::release) of an inode that the caller has.
    pub(crate) fn release_inode(&self, inode: &Arc<Inode>) -> Result<()> {
        let last =
            inode.opens.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        match last {
            Ok(1) => {
                truncate::drop_window(&self.fs, inode);
                truncate::reap_if_gone(&self.fs, inode).map_err(|e| self.fs.report_error(e))
            }
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Invalid),
        }
    }

    /// Whether writes to the file must append.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn is_append_only(&self, ino: InodeNo) -> Result<bool> {
        Ok(self.inode(ino)?.snapshot().has_any(flags::APPEND))
    }
}
