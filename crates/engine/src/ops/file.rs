//! An open file as a value: looked up once, closed when dropped.

use std::fmt;

use nextent_ondisk::InodeNo;
use nextent_sync::Arc;

use super::attr;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::ops::Inodes;
use crate::{Access, Attr, Cred, FallocateMode};

/// An open regular file.
///
/// Permissions are checked when it is opened, as with a file descriptor. Many threads may use it at
/// once. Dropping it calls [`Inodes::release`] and ignores its error.
///
/// ```
/// # use nextent::inodes::{Access, NewNode, ROOT_INO, Inodes};
/// # use nextent::{Cred};
/// # fn example(volume: &Inodes) -> nextent::Result<()> {
/// let root = Cred::root();
/// let attr = volume.mknod(&root, ROOT_INO, b"log", NewNode::Regular, 0o644)?;
/// let file = volume.file(&root, attr.ino, Access::READ_WRITE)?;
/// file.append(b"a line\n")?;
/// file.sync()
/// # }
/// ```
pub struct OpenFile<'v> {
    pub(super) volume: &'v Inodes,
    pub(super) inode: Arc<Inode>,
    pub(super) cred: Cred,
    pub(super) access: Access,
}

impl Inodes {
    /// Opens the regular file `ino` as `cred`.
    ///
    /// # Errors
    /// As [`open_file`](Self::open_file); [`Error::IsDir`], or [`Error::Invalid`] for other kinds
    /// of files.
    pub fn file(&self, cred: &Cred, ino: InodeNo, access: Access) -> Result<OpenFile<'_>> {
        self.check_regular(&*self.inode(ino)?)?;
        let inode = self.open_inode(cred, ino, access)?;
        Ok(OpenFile { volume: self, inode, cred: cred.clone(), access })
    }

    /// Creates a regular file, which must not exist yet, and opens it for reading and writing, as
    /// one step.
    ///
    /// # Errors
    /// As [`mknod`](Self::mknod).
    pub fn create_file(
        &self,
        cred: &Cred,
        parent: InodeNo,
        name: &[u8],
        mode: u16,
    ) -> Result<OpenFile<'_>> {
        let inode = self.create_opened(cred, parent, name, mode)?;
        Ok(OpenFile { volume: self, inode, cred: cred.clone(), access: Access::READ_WRITE })
    }
}

impl OpenFile<'_> {
    /// The inode's number.
    #[must_use]
    pub fn ino(&self) -> InodeNo {
        self.inode.ino
    }

    /// The attributes that `stat` returns.
    #[must_use]
    pub fn attr(&self) -> Attr {
        attr(&self.volume.fs, &self.inode)
    }

    pub(super) fn for_writing(&self) -> Result<()> {
        if self.access.write { Ok(()) } else { Err(Error::Access) }
    }

    /// As [`Inodes::read`].
    ///
    /// # Errors
    /// [`Error::Access`] if the file was not opened for reading; else as there.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if !self.access.read {
            return Err(Error::Access);
        }
        self.volume.read_in(&self.inode, offset, buf)
    }

    /// As [`Inodes::write`].
    ///
    /// # Errors
    /// [`Error::Access`] if the file was not opened for writing; else as there.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<usize> {
        self.for_writing()?;
        self.volume.write_in(&self.cred, &self.inode, offset, data)
    }

    /// As [`Inodes::append`].
    ///
    /// # Errors
    /// [`Error::Access`] if the file was not opened for writing; else as there.
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        self.for_writing()?;
        self.volume.append_in(&self.cred, &self.inode, data)
    }

    /// As [`Inodes::fallocate`].
    ///
    /// # Errors
    /// [`Error::Access`] if the file was not opened for writing; else as there.
    pub fn fallocate(&self, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        self.for_writing()?;
        self.volume.fallocate_in(&self.cred, &self.inode, mode, offset, len)
    }

    /// Sets the size: truncates the file, or extends it by a hole.
    ///
    /// # Errors
    /// [`Error::Access`] if the file was not opened for writing; else as [`Inodes::setattr`].
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.for_writing()?;
        self.volume.truncate_in(&self.cred, &self.inode, size)
    }

    /// As [`Inodes::fsync`].
    ///
    /// # Errors
    /// As there.
    pub fn sync(&self) -> Result<()> {
        self.volume.sync_inode(&self.inode, false)
    }

    /// As [`Inodes::fdatasync`].
    ///
    /// # Errors
    /// As there.
    pub fn sync_data(&self) -> Result<()> {
        self.volume.sync_inode(&self.inode, true)
    }
}

impl fmt::Debug for OpenFile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenFile")
            .field("ino", &self.inode.ino)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

impl Drop for OpenFile<'_> {
    fn drop(&mut self) {
        // If freeing fails the file is an orphan, which the next open of the volume frees.
        let _ = self.volume.release_inode(&self.inode);
    }
}
