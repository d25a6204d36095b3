//! Making, moving and reading names.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::path::{Place, bytes};
use super::{Permissions, Volume};
use crate::attr::Name;
use crate::error::{Error, Result};
use crate::{Access, FileType, NewNode, RenameMode};

/// Permission bits of a new directory, before the umask.
const DIR_MODE: u16 = 0o777;

impl Volume {
    /// Makes a directory with the permission bits `0777` less the umask.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotFound`] when the parent does not exist, [`Error::NotDir`],
    /// [`Error::Access`], [`Error::NoSpace`], [`Error::NoInodes`], [`Error::TooManyLinks`].
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let Some(place) = self.place(path.as_ref())? else { return Err(Error::Exists) };
        self.inodes().mkdir(&self.cred, place.dir, place.name, DIR_MODE).map(drop)
    }

    /// Makes a directory and the directories above it that do not exist. A directory that exists
    /// is no error.
    ///
    /// # Errors
    /// As [`create_dir`](Self::create_dir); [`Error::NotDir`] when a part of the path exists and is
    /// no directory, and [`Error::Exists`] when the last one does.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let mut missing = vec![path];
        while let Some(path) = missing.last().copied() {
            match self.create_dir(path) {
                Err(Error::NotFound) => match path.parent() {
                    Some(parent) if !parent.as_os_str().is_empty() => missing.push(parent),
                    _ => return Err(Error::NotFound),
                },
                Ok(()) => drop(missing.pop()),
                Err(error) => {
                    if !self.attr(path, true).is_ok_and(|attr| attr.kind.is_dir()) {
                        return Err(error);
                    }
                    missing.pop();
                }
            }
        }
        Ok(())
    }

    /// Makes a pipe, a socket's name, a device node or an empty file. Permission bits before the
    /// umask.
    ///
    /// # Errors
    /// As [`create_dir`](Self::create_dir); [`Error::Perm`] for device nodes unless the user is
    /// privileged.
    pub fn create_node(
        &self,
        path: impl AsRef<Path>,
        node: NewNode,
        permissions: Permissions,
    ) -> Result<()> {
        let place = self.new_name(path.as_ref())?;
        let bits = permissions.bits;
        self.inodes().mknod(&self.cred, place.dir, place.name, node, bits).map(drop)
    }

    /// Makes a symbolic link at `link` that points to `original`, which need not exist.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NameTooLong`] when the target does not fit into a block or is
    /// empty, and as [`create_dir`](Self::create_dir).
    pub fn symlink(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let target = bytes(original.as_ref())?;
        let place = self.new_name(link.as_ref())?;
        self.inodes().symlink(&self.cred, place.dir, place.name, target).map(drop)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a file of another type, and the errors of path resolution.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let pinned = self.pin(path.as_ref(), false)?;
        let target = self.inodes().readlink(pinned.attr.ino)?;
        Ok(PathBuf::from(OsString::from_vec(target)))
    }

    /// Gives the file `original` another name `link`. A symbolic link is not followed.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Perm`] for directories, [`Error::TooManyLinks`] beyond 65,000,
    /// [`Error::CrossDevice`] across projects, and as [`create_dir`](Self::create_dir).
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let pinned = self.pin(original.as_ref(), false)?;
        let place = self.new_name(link.as_ref())?;
        self.inodes().link(&self.cred, pinned.attr.ino, place.dir, place.name).map(drop)
    }

    /// Moves the name `from` to `to` in one step and replaces what `to` named.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotEmpty`] when `to` is a directory with entries,
    /// [`Error::IsDir`] and [`Error::NotDir`] when only one of both is a directory,
    /// [`Error::Invalid`] when a directory would be moved below itself, [`Error::Busy`] for the
    /// root and paths that end in `.` or `..`, [`Error::CrossDevice`] across projects,
    /// [`Error::Access`], [`Error::Perm`].
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameMode::Replace)
    }

    /// As [`rename`](Self::rename), or without replacing, or exchanging both.
    ///
    /// # Errors
    /// As [`rename`](Self::rename); [`Error::Exists`] with [`RenameMode::NoReplace`].
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        mode: RenameMode,
    ) -> Result<()> {
        let from = self.place(from.as_ref())?.ok_or(Error::Busy)?;
        let to = self.place(to.as_ref())?.ok_or(Error::Busy)?;
        if from.is_dots() || to.is_dots() {
            return Err(Error::Busy);
        }
        let kind = |place: &Place<'_>| {
            self.inodes().lookup(&self.cred, place.dir, place.name).map(|attr| attr.kind)
        };
        // A name that slashes follow must be a directory's; `to` need not exist.
        if (from.slash || to.slash) && kind(&from)? != FileType::Directory {
            return Err(Error::NotDir);
        }
        if mode == RenameMode::Exchange && to.slash && kind(&to)? != FileType::Directory {
            return Err(Error::NotDir);
        }
        let (from, to) = (Name::new(from.dir, from.name), Name::new(to.dir, to.name));
        self.inodes().rename(&self.cred, from, to, mode)
    }

    /// Removes a name of a file that is not a directory. The file goes with its last name and its
    /// last open [`File`](crate::File). A symbolic link is removed itself.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsDir`], [`Error::Access`], [`Error::Perm`] in a sticky
    /// directory and for immutable files.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let place = self.place(path.as_ref())?.ok_or(Error::IsDir)?;
        if place.is_dots() {
            return Err(Error::IsDir);
        }
        if place.slash {
            let found = self.inodes().lookup(&self.cred, place.dir, place.name)?;
            return Err(if found.kind.is_dir() { Error::IsDir } else { Error::NotDir });
        }
        self.inodes().unlink(&self.cred, place.dir, place.name)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDir`], [`Error::NotEmpty`], [`Error::Busy`] for the root,
    /// [`Error::Invalid`] for a path that ends in `.`, and as [`remove_file`](Self::remove_file).
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let place = self.place(path.as_ref())?.ok_or(Error::Busy)?;
        self.inodes().rmdir(&self.cred, place.dir, place.name)
    }

    /// The place of a name that is to be made and is no directory's.
    fn new_name<'p>(&self, path: &'p Path) -> Result<Place<'p>> {
        let place = self.place(path)?.ok_or(Error::Exists)?;
        if place.slash {
            // As Linux has it: what exists exists, and what does not is no directory yet.
            self.inodes().lookup(&self.cred, place.dir, place.name)?;
            return Err(Error::Exists);
        }
        if place.is_dots() {
            return Err(Error::Exists);
        }
        Ok(place)
    }

    /// Whether the user may use the file at `path` as `want` says; symbolic links are followed.
    ///
    /// # Errors
    /// [`Error::Access`], [`Error::ReadOnly`], [`Error::Perm`] for writing an immutable file.
    pub fn access(&self, path: impl AsRef<Path>, want: Access) -> Result<()> {
        let pinned = self.pin(path.as_ref(), true)?;
        self.inodes().access(&self.cred, pinned.attr.ino, want)
    }
}
