//! Extended attributes by path; symbolic links are followed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use super::Volume;
use crate::XattrMode;
use crate::error::{Error, Result};

impl Volume {
    /// The value of the extended attribute `name`, namespace included (`user.mime_type`); `None`
    /// if the file does not have it.
    ///
    /// # Errors
    /// [`Error::Access`], [`Error::NotSupported`] for an unknown namespace, and the errors of path
    /// resolution.
    pub fn get_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<Option<Vec<u8>>> {
        let pinned = self.pin(path.as_ref(), true)?;
        match self.inodes().getxattr(&self.cred, pinned.attr.ino, name.as_ref().as_bytes()) {
            Err(Error::NoData) => Ok(None),
            value => value.map(Some),
        }
    }

    /// Sets the extended attribute `name`.
    ///
    /// # Errors
    /// [`Error::AttributesFull`] when the file has no room for it, [`Error::NoSpace`],
    /// [`Error::Range`] for a name of more than 255 bytes, [`Error::Perm`], and as
    /// [`get_xattr`](Self::get_xattr).
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let pinned = self.pin(path.as_ref(), true)?;
        let (ino, name) = (pinned.attr.ino, name.as_ref().as_bytes());
        self.inodes().setxattr(&self.cred, ino, name, value.as_ref(), XattrMode::Either)
    }

    /// Removes the extended attribute `name`.
    ///
    /// # Errors
    /// [`Error::NoData`] if the file does not have it, and as [`set_xattr`](Self::set_xattr).
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        let pinned = self.pin(path.as_ref(), true)?;
        self.inodes().removexattr(&self.cred, pinned.attr.ino, name.as_ref().as_bytes())
    }

    /// The names of all extended attributes that the user may know of.
    ///
    /// # Errors
    /// [`Error::Corrupt`], and the errors of path resolution.
    pub fn list_xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        let pinned = self.pin(path.as_ref(), true)?;
        let names = self.inodes().listxattr(&self.cred, pinned.attr.ino)?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }
}
