//! From paths to inodes.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nextent_ondisk::InodeNo;

use super::Volume;
use crate::error::{Error, Result};
use crate::{Attr, FileType, ROOT_INO};

/// Bytes of a path with its closing NUL on Linux, at most.
const PATH_MAX: usize = 4096;
/// Symbolic links that one path may lead through.
pub(super) const LINKS_MAX: u32 = 40;

/// The last name of a path in the directory that holds it or would hold it.
pub(super) struct Place<'p> {
    pub(super) dir: InodeNo,
    pub(super) name: &'p [u8],
    /// Whether slashes follow the name: it must then be a directory's.
    pub(super) slash: bool,
}

impl Place<'_> {
    /// Whether the name is `.` or `..`.
    pub(super) fn is_dots(&self) -> bool {
        matches!(self.name, b"." | b"..")
    }
}

/// An inode that is pinned, so that its number stays its own.
pub(super) struct Pinned<'v> {
    volume: &'v Volume,
    pub(super) attr: Attr,
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        // What could not be freed is an orphan, which the next open of the volume frees.
        let _ = self.volume.inodes().unpin(self.attr.ino, 1);
    }
}

/// The bytes of a path, if a path may have them.
pub(super) fn bytes(path: &Path) -> Result<&[u8]> {
    match path.as_os_str().as_bytes() {
        b"" => Err(Error::NotFound),
        bytes if bytes.len() >= PATH_MAX => Err(Error::NameTooLong),
        bytes if bytes.contains(&0) => Err(Error::Invalid),
        bytes => Ok(bytes),
    }
}

impl Volume {
    /// The attributes of the file at `path`.
    pub(super) fn attr(&self, path: &Path, follow: bool) -> Result<Attr> {
        self.inodes().resolve(&self.cred, bytes(path)?, follow)
    }

    /// The file at `path`, pinned.
    pub(super) fn pin(&self, path: &Path, follow: bool) -> Result<Pinned<'_>> {
        loop {
            let found = self.attr(path, follow)?;
            let attr = match self.inodes().pin(found.ino) {
                // Removed since: the path may mean another file by now.
                Err(Error::NotFound) => continue,
                pinned => pinned?,
            };
            let pinned = Pinned { volume: self, attr };
            if pinned.attr.generation == found.generation {
                return Ok(pinned);
            }
        }
    }

    /// The last name of `path`; `None` for the root.
    pub(super) fn place<'p>(&self, path: &'p Path) -> Result<Option<Place<'p>>> {
        let path = bytes(path)?;
        self.place_from(ROOT_INO, path)
    }

    /// As [`place`](Self::place), for a path that starts in the directory `base` unless it is
    /// absolute.
    pub(super) fn place_from<'p>(
        &self,
        base: InodeNo,
        path: &'p [u8],
    ) -> Result<Option<Place<'p>>> {
        if path.iter().all(|byte| *byte == b'/') {
            return Ok(None);
        }
        let (dir, name) = self.inodes().resolve_parent_from(&self.cred, base, path)?;
        Ok(Some(Place { dir, name, slash: path.ends_with(b"/") }))
    }

    /// The path of the same file without symbolic links, `.` and `..`, from the root.
    ///
    /// # Errors
    /// [`Error::NotFound`] when a part of the path does not exist, [`Error::NotDir`],
    /// [`Error::Access`], [`Error::Loop`].
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let mut links = LINKS_MAX;
        let mut names: Vec<(Vec<u8>, InodeNo)> = Vec::new();
        // Names to come, the next one last.
        let mut rest = reversed(bytes(path.as_ref())?);
        let mut kind = FileType::Directory;
        while let Some(name) = rest.pop() {
            // Also for the empty name that a closing slash leaves.
            if kind != FileType::Directory {
                return Err(Error::NotDir);
            }
            let dir = names.last().map_or(ROOT_INO, |(_, ino)| *ino);
            match &*name {
                b"" => continue,
                b"." => {
                    self.inodes().lookup(&self.cred, dir, b".")?;
                }
                b".." => {
                    self.inodes().lookup(&self.cred, dir, b"..")?;
                    names.pop();
                }
                _ => {
                    let found = self.inodes().lookup(&self.cred, dir, &name)?;
                    if found.kind != FileType::Symlink {
                        kind = found.kind;
                        names.push((name, found.ino));
                        continue;
                    }
                    links = links.checked_sub(1).ok_or(Error::Loop)?;
                    let target = self.inodes().readlink(found.ino)?;
                    if target.starts_with(b"/") {
                        names.clear();
                    }
                    rest.extend(reversed(&target));
                }
            }
        }
        let mut full = Vec::new();
        for (name, _) in &names {
            full.push(b'/');
            full.extend_from_slice(name);
        }
        if full.is_empty() {
            full.push(b'/');
        }
        Ok(PathBuf::from(OsString::from_vec(full)))
    }
}

/// The names of `path`, the first one last. An empty name stands for a slash too many.
fn reversed(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|byte| *byte == b'/').rev().map(<[u8]>::to_vec).collect()
}
