//! Listing a directory.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use nextent_ondisk::InodeNo;
use nextent_sync::Arc;

use super::{Metadata, Volume};
use crate::error::{Error, Result};
use crate::{Access, FileType};

/// Entries that are read at once, while the directory is locked.
const BATCH: usize = 256;

/// The entries of a directory, as [`std::fs::ReadDir`]; without `.` and `..`.
///
/// An entry that exists during the whole iteration comes exactly once. Entries that come or go
/// meanwhile may or may not be seen. The iterator keeps its volume open.
pub struct ReadDir {
    dir: Arc<OpenDir>,
    /// Read and not handed out yet, the next one last.
    batch: Vec<DirEntry>,
    /// Where reading goes on; `None` at the end.
    next: Option<u64>,
}

/// A directory that is kept open.
struct OpenDir {
    volume: Volume,
    ino: InodeNo,
    path: PathBuf,
}

impl Drop for OpenDir {
    fn drop(&mut self) {
        // What could not be freed is an orphan, which the next open of the volume frees.
        let _ = self.volume.inodes().release(self.ino);
    }
}

/// An entry of a directory, as [`std::fs::DirEntry`].
#[derive(Clone)]
pub struct DirEntry {
    dir: Arc<OpenDir>,
    ino: InodeNo,
    kind: Option<FileType>,
    name: OsString,
}

impl Volume {
    /// The entries of the directory at `path`, in no particular order.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDir`], [`Error::Access`] unless the user may read the
    /// directory. The iterator's items may be [`Error::Io`] or [`Error::Corrupt`].
    ///
    /// # Examples
    ///
    /// ```
    /// use nextent::{Result, Volume};
    ///
    /// /// Bytes of all files below a directory.
    /// fn total(volume: &Volume, dir: &std::path::Path) -> Result<u64> {
    ///     volume.read_dir(dir)?.try_fold(0, |sum, entry| {
    ///         let entry = entry?;
    ///         Ok(sum
    ///             + match entry.file_type()?.is_dir() {
    ///                 true => total(volume, &entry.path())?,
    ///                 false => entry.metadata()?.len(),
    ///             })
    ///     })
    /// }
    /// ```
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        let pinned = self.pin(path, true)?;
        if pinned.attr.kind != FileType::Directory {
            return Err(Error::NotDir);
        }
        let ino = pinned.attr.ino;
        self.inodes().open_file(&self.cred, ino, Access::READ)?;
        let dir = Arc::new(OpenDir { volume: self.clone(), ino, path: path.to_owned() });
        Ok(ReadDir { dir, batch: Vec::new(), next: Some(0) })
    }
}

impl ReadDir {
    /// Reads the next entries into the batch.
    fn fill(&mut self, cookie: u64) -> Result<()> {
        let mut next = None;
        let dir = &self.dir;
        let batch = &mut self.batch;
        dir.volume.inodes().readdir(dir.ino, cookie, &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                let name = OsString::from_vec(entry.name.to_vec());
                let (ino, kind) = (entry.ino, entry.kind);
                batch.push(DirEntry { dir: Arc::clone(dir), ino, kind, name });
            }
            let full = batch.len() >= BATCH;
            if full {
                next = Some(entry.next);
            }
            !full
        })?;
        batch.reverse();
        self.next = next;
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.batch.is_empty()
            && let Some(cookie) = self.next.take()
            && let Err(error) = self.fill(cookie)
        {
            // Entries before the damage are lost with it: the directory cannot be listed.
            self.batch.clear();
            return Some(Err(error));
        }
        self.batch.pop().map(Ok)
    }
}

impl std::iter::FusedIterator for ReadDir {}

impl DirEntry {
    /// The name.
    #[must_use]
    pub fn file_name(&self) -> OsString {
        self.name.clone()
    }

    /// The path that was listed, joined with the name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.path.join(&self.name)
    }

    /// The number of the inode.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.ino.0.into()
    }

    /// The type; of a symbolic link, not of its target.
    ///
    /// # Errors
    /// As [`metadata`](Self::metadata), on volumes whose entries do not say the type.
    pub fn file_type(&self) -> Result<FileType> {
        match self.kind {
            Some(kind) => Ok(kind),
            None => Ok(self.metadata()?.file_type()),
        }
    }

    /// The metadata; of a symbolic link, not of its target.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the name is gone, [`Error::Access`] unless the user may search the
    /// directory.
    pub fn metadata(&self) -> Result<Metadata> {
        use std::os::unix::ffi::OsStrExt;
        let volume = &self.dir.volume;
        volume.inodes().lookup(&volume.cred, self.dir.ino, self.name.as_bytes()).map(Metadata)
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadDir").field(&self.dir.path).finish()
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}
