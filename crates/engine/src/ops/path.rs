//! Resolving paths to inodes.

use nextent_ondisk::InodeNo;

use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::ops::Inodes;
use crate::{Attr, Cred, FileType, ROOT_INO};

/// Symbolic links that one resolution follows at most.
const LINKS_MAX: u32 = 40;
/// The longest path, in bytes.
const PATH_MAX: usize = 4096;

impl Inodes {
    /// The file at `path`, from the root. `follow` says whether to follow a symbolic link at the
    /// end. A path that ends in `/` means a directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDir`], [`Error::Loop`], [`Error::Access`],
    /// [`Error::NameTooLong`].
    pub fn resolve(&self, cred: &Cred, path: &[u8], follow: bool) -> Result<Attr> {
        self.resolve_from(cred, ROOT_INO, path, follow)
    }

    /// The file at `path`, from the directory `base` unless the path starts with `/`.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    pub fn resolve_from(
        &self,
        cred: &Cred,
        base: InodeNo,
        path: &[u8],
        follow: bool,
    ) -> Result<Attr> {
        if path.len() > PATH_MAX {
            return Err(Error::NameTooLong);
        }
        let start = if path.starts_with(b"/") { ROOT_INO } else { base };
        let read = |file: &Inode| super::attr(&self.fs, file);
        self.walk(cred, start, path, (follow, LINKS_MAX), &read).map(|(attr, _)| attr)
    }

    /// The result of `read` for the file that `path` leads to from `start`, and its kind. Follows
    /// at most `links` symbolic links; one at the end only if `follow` is set or a slash comes
    /// after it.
    fn walk<R>(
        &self,
        cred: &Cred,
        start: InodeNo,
        path: &[u8],
        (follow, links): (bool, u32),
        read: &impl Fn(&Inode) -> R,
    ) -> Result<(R, FileType)> {
        let (mut at, mut rest) = (start, path);
        while let Some((name, after)) = first(rest) {
            // If this is the last name, `read` is called for it, in case it is not a symbolic link.
            let last = first(after).is_none();
            let (next, result, kind) = if last {
                let look = |file: &Inode| (file.ino, read(file), kind_of(file));
                let (next, result, kind) = self.look_up(cred, at, name, look)?;
                (next, Some(result), kind)
            } else {
                let (next, kind) = self.look_up(cred, at, name, |dir| (dir.ino, kind_of(dir)))?;
                (next, None, kind)
            };
            if kind == FileType::Symlink && (follow || !after.is_empty()) {
                let links = links.checked_sub(1).ok_or_else(|| Error::Loop)?;
                let mut target = self.readlink(next)?;
                let from = if target.first() == Some(&b'/') { ROOT_INO } else { at };
                target.extend_from_slice(after);
                return self.walk(cred, from, &target, (follow, links), read);
            }
            if !after.is_empty() && kind != FileType::Directory {
                return Err(Error::NotDir);
            }
            if let Some(result) = result {
                return Ok((result, kind));
            }
            (at, rest) = (next, after);
        }
        let inode = self.inode(start)?;
        let kind = kind_of(&inode);
        if !path.is_empty() && kind != FileType::Directory {
            return Err(Error::NotDir);
        }
        Ok((read(&inode), kind))
    }

    /// The directory of the last name of `path`, whether that exists or not, and that name.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve); [`Error::Invalid`] for a path without a name, such as `/`.
    pub fn resolve_parent<'p>(&self, cred: &Cred, path: &'p [u8]) -> Result<(InodeNo, &'p [u8])> {
        self.resolve_parent_from(cred, ROOT_INO, path)
    }

    /// As [`resolve_parent`](Self::resolve_parent), from the directory `base` unless the path
    /// starts with `/`.
    ///
    /// # Errors
    /// As [`resolve_parent`](Self::resolve_parent).
    pub fn resolve_parent_from<'p>(
        &self,
        cred: &Cred,
        base: InodeNo,
        path: &'p [u8],
    ) -> Result<(InodeNo, &'p [u8])> {
        if path.len() > PATH_MAX {
            return Err(Error::NameTooLong);
        }
        let end = path.iter().rposition(|byte| *byte != b'/').ok_or_else(|| Error::Invalid)? + 1;
        let path = &path[..end];
        let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let from = if path.starts_with(b"/") { ROOT_INO } else { base };
        match self.walk(cred, from, &path[..start], (true, LINKS_MAX), &|dir| dir.ino)? {
            (dir, FileType::Directory) => Ok((dir, &path[start..])),
            _ => Err(Error::NotDir),
        }
    }
}

fn kind_of(file: &Inode) -> FileType {
    file.file_type().unwrap_or(FileType::Regular)
}

/// The first name of `path` and what follows it, slashes included.
fn first(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = path.iter().position(|byte| *byte != b'/')?;
    let path = &path[start..];
    let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
    Some(path.split_at(end))
}
