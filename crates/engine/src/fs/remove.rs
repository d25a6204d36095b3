//! Removing a tree.

use std::path::Path;

use nextent_ondisk::InodeNo;

use super::Volume;
use crate::error::{Error, Result};
use crate::{Access, FileType};

/// Names that are read at once.
const BATCH: usize = 256;

/// A directory on the way down, kept open.
struct Level<'v> {
    volume: &'v Volume,
    /// The directory that has the name, and the name.
    parent: InodeNo,
    name: Vec<u8>,
    ino: InodeNo,
    /// Entries that were read and not removed yet.
    entries: Vec<(Vec<u8>, InodeNo, Option<FileType>)>,
}

impl Drop for Level<'_> {
    fn drop(&mut self) {
        // What could not be freed is an orphan, which the next open of the volume frees.
        let _ = self.volume.inodes().release(self.ino);
    }
}

impl Volume {
    /// Removes a directory with all that is in it. A symbolic link is removed itself and not
    /// followed, at `path` and below.
    ///
    /// Entries that others remove meanwhile are no error; entries that others add may be.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDir`] for a file, [`Error::Access`], [`Error::Perm`]. What
    /// was removed before the error stays removed. [`Error::Busy`] for the root, whose contents are
    /// removed.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let found = self.attr(path, false)?;
        if found.kind == FileType::Symlink {
            return self.remove_file(path);
        }
        let Some(place) = self.place(path)? else {
            self.remove_below(crate::ROOT_INO, b".")?;
            return Err(Error::Busy);
        };
        if place.is_dots() {
            return Err(Error::Invalid);
        }
        self.remove_below(place.dir, place.name)?;
        self.inodes().rmdir(&self.cred, place.dir, place.name)
    }

    /// Removes all that is in the directory `name` of `parent`. Keeps its own stack: a tree may be
    /// deeper than a thread's.
    fn remove_below(&self, parent: InodeNo, name: &[u8]) -> Result<()> {
        let found = self.inodes().lookup(&self.cred, parent, name)?;
        let mut levels = vec![self.enter(parent, name.to_vec(), found.ino)?];
        while let Some(level) = levels.last_mut() {
            if level.entries.is_empty() {
                level.fill()?;
            }
            let Some((name, ino, kind)) = level.entries.pop() else {
                let done = levels.pop().expect("the loop saw a level");
                if !levels.is_empty() {
                    gone_is_done(self.inodes().rmdir(&self.cred, done.parent, &done.name))?;
                }
                continue;
            };
            let dir = level.ino;
            let kind = match kind {
                Some(kind) => kind,
                None => self.inodes().lookup(&self.cred, dir, &name)?.kind,
            };
            if kind == FileType::Directory {
                levels.push(self.enter(dir, name, ino)?);
            } else {
                gone_is_done(self.inodes().unlink(&self.cred, dir, &name))?;
            }
        }
        Ok(())
    }

    fn enter(&self, parent: InodeNo, name: Vec<u8>, ino: InodeNo) -> Result<Level<'_>> {
        self.inodes().open_file(&self.cred, ino, Access::READ)?;
        Ok(Level { volume: self, parent, name, ino, entries: Vec::new() })
    }
}

impl Level<'_> {
    /// Reads names from the start: those that were read before are gone.
    fn fill(&mut self) -> Result<()> {
        let entries = &mut self.entries;
        self.volume.inodes().readdir(self.ino, 0, &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                entries.push((entry.name.to_vec(), entry.ino, entry.kind));
            }
            entries.len() < BATCH
        })
    }
}

/// A name that another thread removed first is removed.
fn gone_is_done(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(Error::NotFound) => Ok(()),
        outcome => outcome,
    }
}
