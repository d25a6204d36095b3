//! Extended attributes: which user may read and set which.

use nextent_ondisk::InodeNo;
use nextent_ondisk::inode::{flags, mode};

use super::permission;
use crate::error::{Error, Result};
use crate::inode::{Change, Inode, attributes, credits};
use crate::ops::Inodes;
use crate::{Access, Cred, FileType, XattrMode};

/// The longest name, namespace included.
const NAME_MAX: usize = 255;

impl Inodes {
    /// The value of an attribute. `system.posix_acl_*` has the form of Linux's system calls.
    ///
    /// # Errors
    /// [`Error::NoData`], [`Error::Access`], [`Error::NotSupported`] for an unknown namespace.
    pub fn getxattr(&self, cred: &Cred, ino: InodeNo, name: &[u8]) -> Result<Vec<u8>> {
        let inode = self.inode(ino)?;
        let _guard = inode.rw.read();
        super::still_in_use(&inode)?;
        if name.starts_with(b"user.") {
            self.check_user(&inode, false)?;
            self.report(permission::may(&self.fs, cred, &inode, Access::READ))?;
        } else if name.starts_with(b"trusted.") && !cred.privileged {
            return Err(Error::NoData);
        }
        let value = attributes::get(&self.fs, &inode, name);
        value.map_err(|error| self.fs.report_error(error))
    }

    /// The names of all attributes that are visible to `cred`.
    ///
    /// # Errors
    /// Damaged attributes.
    pub fn listxattr(&self, cred: &Cred, ino: InodeNo) -> Result<Vec<Vec<u8>>> {
        let inode = self.inode(ino)?;
        let _guard = inode.rw.read();
        super::still_in_use(&inode)?;
        let mut names =
            attributes::list(&self.fs, &inode).map_err(|error| self.fs.report_error(error))?;
        if !cred.privileged {
            names.retain(|name| !name.starts_with(b"trusted."));
        }
        Ok(names)
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// [`Error::Exists`] and [`Error::NoData`] as `mode` requires, [`Error::AttributesFull`] if the
    /// attributes of the file are too large, [`Error::NoSpace`], [`Error::Range`] for a name that
    /// is too long, [`Error::Perm`], [`Error::Access`], [`Error::NotSupported`].
    pub fn setxattr(
        &self,
        cred: &Cred,
        ino: InodeNo,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.change_xattr(cred, ino, name, Some(value), mode)
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// [`Error::NoData`], and as [`setxattr`](Self::setxattr).
    pub fn removexattr(&self, cred: &Cred, ino: InodeNo, name: &[u8]) -> Result<()> {
        self.change_xattr(cred, ino, name, None, XattrMode::Replace)
    }

    fn change_xattr(
        &self,
        cred: &Cred,
        ino: InodeNo,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        self.fs.check_writable()?;
        if name.len() > NAME_MAX {
            return Err(Error::Range);
        }
        self.attempt(|| {
            let inode = self.inode(ino)?;
            let _guard = inode.rw.write();
            self.check_xattr_change(cred, &inode, name)?;
            let h = self.fs.start(credits::XATTR + credits::INODE)?;
            attributes::set(&self.fs, &h, &inode, name, value, mode, cred)?;
            inode.change(&h, Change::Attributes, |state| super::touch_change(&self.fs, state));
            drop(h);
            self.sync_if_flagged(&inode)
        })
    }

    fn check_xattr_change(&self, cred: &Cred, inode: &Inode, name: &[u8]) -> Result<()> {
        let bits = inode.with(|state| state.disk.flags);
        if inode.snapshot().is_free() {
            return Err(Error::NotFound);
        }
        if bits & (flags::IMMUTABLE | flags::APPEND) != 0 {
            return Err(Error::Perm);
        }
        if name.starts_with(b"user.") {
            self.check_user(inode, true)?;
            let sticky = inode.snapshot().mode() & mode::STICKY != 0;
            if sticky && inode.file_type() == Some(FileType::Directory) {
                permission::owns(cred, inode)?;
            }
            permission::may(&self.fs, cred, inode, Access::WRITE)
        } else if name.starts_with(b"system.posix_acl_") {
            permission::owns(cred, inode)
        } else if cred.privileged {
            Ok(())
        } else {
            Err(Error::Perm)
        }
    }

    /// Only files and directories have attributes of the namespace `user.`.
    fn check_user(&self, inode: &Inode, change: bool) -> Result<()> {
        match inode.file_type() {
            Some(FileType::Regular | FileType::Directory) => Ok(()),
            _ if change => Err(Error::Perm),
            _ => Err(Error::NoData),
        }
    }
}
