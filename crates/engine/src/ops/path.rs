//! From paths to inodes, for callers that think in paths.

use nextent_ondisk::InodeNo;

use crate::error::{Error, Result};
use crate::volume::Volume;
use crate::{Attr, Cred, FileType, ROOT_INO};

/// Symbolic links followed on the way, at most.
const LINKS_MAX: u32 = 40;
/// Bytes of a path, at most.
const PATH_MAX: usize = 4096;

impl Volume {
    /// The file at `path`, from the root; `follow` says whether a symbolic link at its end is
    /// followed. A path that ends in `/` means a directory.
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
        let mut links = 0;
        let mut rest = path.to_vec();
        let mut at = self.getattr(if path.starts_with(b"/") { ROOT_INO } else { base })?;
        loop {
            let Some((name, after)) = first(&rest) else {
                let slash = rest.first() == Some(&b'/') || path.last() == Some(&b'/');
                return if slash && at.kind != FileType::Directory {
                    Err(Error::NotDir)
                } else {
                    Ok(at)
                };
            };
            if at.kind != FileType::Directory {
                return Err(Error::NotDir);
            }
            let next = self.lookup(cred, at.ino, name)?;
            let ends = after.iter().all(|byte| *byte == b'/');
            let through = !ends || follow || !after.is_empty();
            if next.kind != FileType::Symlink || !through {
                rest = after.to_vec();
                at = next;
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Error::Loop);
            }
            let mut target = self.readlink(next.ino)?;
            if target.first() == Some(&b'/') {
                at = self.getattr(ROOT_INO)?;
            }
            if !after.is_empty() {
                target.push(b'/');
                target.extend_from_slice(after);
            }
            rest = target;
        }
    }

    /// The directory that holds (or would hold) the last name of `path`, and that name.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve); [`Error::Invalid`] for a path without a name, such as `/`.
    pub fn resolve_parent<'p>(&self, cred: &Cred, path: &'p [u8]) -> Result<(InodeNo, &'p [u8])> {
        let end = path.iter().rposition(|byte| *byte != b'/').ok_or(Error::Invalid)? + 1;
        let path = &path[..end];
        let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let dir = self.resolve(cred, &path[..start], true)?;
        match dir.kind {
            FileType::Directory => Ok((dir.ino, &path[start..])),
            _ => Err(Error::NotDir),
        }
    }
}

/// The first name of `path` and what follows it, slashes included.
fn first(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = path.iter().position(|byte| *byte != b'/')?;
    let path = &path[start..];
    let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
    Some(path.split_at(end))
}
