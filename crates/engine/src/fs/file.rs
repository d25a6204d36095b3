//! An open file.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use nextent_num::to_u64;
use nextent_sync::{Arc, LockClass, Mutex};

use super::{FileOptions, FileTimes, Metadata, Permissions, Volume};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::{Access, FallocateMode, SetAttr};

/// An open file, as [`std::fs::File`].
///
/// It keeps its volume open. What was allowed when it was opened stays allowed. A file without a
/// name is freed when its last `File` is dropped.
///
/// A `File` may be shared by threads: [`read_at`](Self::read_at) and [`write_at`](Self::write_at)
/// run in parallel, while [`Read`], [`Write`] and [`Seek`] take turns at the one position. A
/// directory may be opened for reading, for its metadata and for [`sync_all`](Self::sync_all).
///
/// # Examples
///
/// ```
/// use std::io::{Read, Seek, SeekFrom, Write};
///
/// use nextent::Volume;
///
/// fn header(volume: &Volume) -> std::io::Result<[u8; 4]> {
///     let mut file = volume.create_file("/table")?;
///     file.write_all(b"head and rows")?;
///     file.sync_all()?;
///     let mut file = volume.open_file("/table")?;
///     let mut bytes = [0; 4];
///     file.read_exact(&mut bytes)?;
///     file.seek(SeekFrom::Start(0))?;
///     Ok(bytes)
/// }
/// ```
pub struct File {
    volume: Volume,
    inode: Arc<Inode>,
    access: Access,
    append: bool,
    /// Where the next read or write begins. `[file.position]`
    position: Mutex<u64>,
}

static POSITION: LockClass = LockClass::new("file.position", 84);

impl Volume {
    /// Opens the file at `path` for reading.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Access`], [`Error::NotSupported`] for what is neither a
    /// regular file nor a directory, and the errors of path resolution.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        FileOptions::new().read(true).open(self, path)
    }

    /// Opens the file at `path` for writing; makes it, or empties it if it exists.
    ///
    /// # Errors
    /// As [`FileOptions::open`].
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File> {
        FileOptions::new().write(true).create(true).truncate(true).open(self, path)
    }
}

impl File {
    /// A file of `inode`, whose open this takes over.
    pub(super) fn new(volume: &Volume, inode: Arc<Inode>, access: Access, append: bool) -> Self {
        let position = Mutex::new(&POSITION, 0);
        Self { volume: volume.clone(), inode, access, append, position }
    }

    fn for_reading(&self) -> Result<()> {
        if self.access.read { Ok(()) } else { Err(Error::BadDescriptor) }
    }

    fn for_writing(&self) -> Result<()> {
        if self.access.write { Ok(()) } else { Err(Error::BadDescriptor) }
    }

    /// The volume that the file is on.
    #[must_use]
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Reads from `offset` into `buf` and returns the number of bytes: fewer than asked only where
    /// the file ends. Holes read as zeros. The position stays.
    ///
    /// # Errors
    /// [`Error::BadDescriptor`] if the file is not open for reading, [`Error::IsDir`],
    /// [`Error::Io`], [`Error::Corrupt`].
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.for_reading()?;
        self.volume.inodes().read_in(&self.inode, offset, buf)
    }

    /// Writes `data` at `offset` and returns the number of bytes: fewer than given only when space
    /// ran out. A gap behind the old end becomes a hole. The position stays. A file that was opened
    /// to append is appended to, whatever `offset` says.
    ///
    /// # Errors
    /// [`Error::BadDescriptor`] if the file is not open for writing, [`Error::NoSpace`] when
    /// nothing was written, [`Error::TooBig`], [`Error::ReadOnly`], [`Error::Io`].
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        self.for_writing()?;
        let (inodes, cred) = (self.volume.inodes(), &*self.volume.cred);
        if self.append {
            inodes.append_in(cred, &self.inode, data)?;
            return Ok(data.len());
        }
        inodes.write_in(cred, &self.inode, offset, data)
    }

    /// Allocates, frees or moves blocks of a range, as fallocate(2); offset and length in bytes.
    ///
    /// # Errors
    /// [`Error::BadDescriptor`] if the file is not open for writing, [`Error::NoSpace`],
    /// [`Error::Invalid`] for a range that the mode does not take, [`Error::NotSupported`] on files
    /// without extents.
    pub fn fallocate(&self, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        self.for_writing()?;
        self.volume.inodes().fallocate_in(&self.volume.cred, &self.inode, mode, offset, len)
    }

    /// Sets the length: cuts the file off, or lets it end in a hole.
    ///
    /// # Errors
    /// [`Error::BadDescriptor`] if the file is not open for writing, [`Error::TooBig`],
    /// [`Error::ReadOnly`].
    pub fn set_len(&self, len: u64) -> Result<()> {
        self.for_writing()?;
        self.volume.inodes().truncate_in(&self.volume.cred, &self.inode, len)
    }

    /// Makes data and metadata of the file durable; of a directory, its entries.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Aborted`].
    pub fn sync_all(&self) -> Result<()> {
        self.volume.inodes().sync_inode(&self.inode, false)
    }

    /// Makes the data durable, and the metadata that is needed to read it.
    ///
    /// # Errors
    /// As [`sync_all`](Self::sync_all).
    pub fn sync_data(&self) -> Result<()> {
        self.volume.inodes().sync_inode(&self.inode, true)
    }

    /// The file's metadata.
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        Metadata(self.volume.inodes().attr_in(&self.inode))
    }

    /// Sets the permission bits.
    ///
    /// # Errors
    /// [`Error::Perm`] unless the user owns the file, [`Error::ReadOnly`].
    pub fn set_permissions(&self, permissions: Permissions) -> Result<()> {
        self.change(&SetAttr { mode: Some(permissions.bits), ..SetAttr::default() })
    }

    /// Sets the times that `times` names.
    ///
    /// # Errors
    /// As [`set_permissions`](Self::set_permissions).
    pub fn set_times(&self, times: FileTimes) -> Result<()> {
        self.change(&times.changes())
    }

    fn change(&self, set: &SetAttr) -> Result<()> {
        self.volume.inodes().setattr_in(&self.volume.cred, &self.inode, set).map(drop)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // What could not be freed is an orphan, which the next open of the volume frees.
        let _ = self.volume.inodes().release_inode(&self.inode);
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("ino", &self.inode.ino)
            .field("access", &self.access)
            .field("append", &self.append)
            .finish_non_exhaustive()
    }
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut position = self.position.lock();
        let done = self.read_at(buf, *position)?;
        *position += to_u64(done);
        Ok(done)
    }
}

impl Write for &File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let mut position = self.position.lock();
        if self.append {
            self.for_writing()?;
            let at = self.volume.inodes().append_in(&self.volume.cred, &self.inode, buf)?;
            *position = at + to_u64(buf.len());
            return Ok(buf.len());
        }
        let done = self.write_at(buf, *position)?;
        *position += to_u64(done);
        Ok(done)
    }

    /// Does nothing: writes are not buffered. For durability call [`File::sync_all`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut position = self.position.lock();
        let next = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(by) => position.checked_add_signed(by),
            SeekFrom::End(by) => self.metadata().len().checked_add_signed(by),
        };
        // Linux has no offsets beyond the largest signed number either.
        let next = next.filter(|next| i64::try_from(*next).is_ok()).ok_or(Error::Invalid)?;
        *position = next;
        Ok(next)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}
