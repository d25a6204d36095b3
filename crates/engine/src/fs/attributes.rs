//! Metadata by path.

use std::path::Path;

use super::{FileTimes, Metadata, Permissions, Volume};
use crate::SetAttr;
use crate::error::{Error, Result};

impl Volume {
    /// The metadata of the file at `path`; symbolic links are followed.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDir`], [`Error::Loop`], [`Error::NameTooLong`],
    /// [`Error::Access`] unless the user may search all directories of the path.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.attr(path.as_ref(), true).map(Metadata)
    }

    /// The metadata of the file at `path`; a symbolic link at its end is not followed.
    ///
    /// # Errors
    /// As [`metadata`](Self::metadata).
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.attr(path.as_ref(), false).map(Metadata)
    }

    /// Whether `path` leads to a file; symbolic links are followed.
    ///
    /// # Errors
    /// As [`metadata`](Self::metadata), but [`Error::NotFound`] is `false`.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.attr(path.as_ref(), true) {
            Ok(_) => Ok(true),
            Err(Error::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sets the permission bits of the file at `path`; symbolic links are followed.
    ///
    /// # Errors
    /// [`Error::Perm`] unless the user owns the file, [`Error::ReadOnly`], and as
    /// [`metadata`](Self::metadata).
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: Permissions) -> Result<()> {
        let set = SetAttr { mode: Some(permissions.bits), ..SetAttr::default() };
        self.change(path.as_ref(), true, &set)
    }

    /// Sets user and group of the file at `path`; `None` leaves one as it is. Symbolic links are
    /// followed.
    ///
    /// # Errors
    /// [`Error::Perm`] unless the user is privileged, or owns the file and gives it to a group of
    /// theirs; [`Error::ReadOnly`], and as [`metadata`](Self::metadata).
    pub fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.change(path.as_ref(), true, &SetAttr { uid, gid, ..SetAttr::default() })
    }

    /// As [`chown`](Self::chown), of a symbolic link itself.
    ///
    /// # Errors
    /// As [`chown`](Self::chown).
    pub fn lchown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.change(path.as_ref(), false, &SetAttr { uid, gid, ..SetAttr::default() })
    }

    /// Sets the times that `times` names; symbolic links are followed.
    ///
    /// # Errors
    /// As [`set_permissions`](Self::set_permissions).
    pub fn set_times(&self, path: impl AsRef<Path>, times: FileTimes) -> Result<()> {
        self.change(path.as_ref(), true, &times.changes())
    }

    fn change(&self, path: &Path, follow: bool, set: &SetAttr) -> Result<()> {
        let pinned = self.pin(path, follow)?;
        self.inodes().setattr(&self.cred, pinned.attr.ino, set).map(drop)
    }
}
