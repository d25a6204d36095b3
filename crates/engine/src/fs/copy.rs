//! Whole files: read, written, copied.

use std::path::Path;

use nextent_num::{to_u64, to_usize};

use super::{File, FileOptions, Permissions, Volume};
use crate::SeekKind;
use crate::error::{Error, Result};

/// Bytes that are read or copied at once.
const CHUNK: usize = 1 << 20;

impl Volume {
    /// The contents of the file at `path`.
    ///
    /// # Errors
    /// As [`open_file`](Self::open_file) and [`File::read_at`]; [`Error::TooBig`] when the contents
    /// do not fit into memory.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let file = self.open_file(path)?;
        let mut bytes = Vec::new();
        loop {
            // The file may grow meanwhile.
            let left = file.metadata().len().saturating_sub(to_u64(bytes.len()));
            let more = usize::try_from(left.max(1)).map_err(|_| Error::TooBig)?;
            bytes.try_reserve(more).map_err(|_| Error::TooBig)?;
            let done = bytes.len();
            bytes.resize(done + more.min(CHUNK), 0);
            let read = file.read_at(&mut bytes[done..], to_u64(done))?;
            bytes.truncate(done + read);
            if read == 0 {
                return Ok(bytes);
            }
        }
    }

    /// The contents of the file at `path` as text.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Error::NotText`] when they are not UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        String::from_utf8(self.read(path)?).map_err(|_| Error::NotText)
    }

    /// Writes `contents` to the file at `path`; makes it, or replaces its contents if it exists.
    ///
    /// # Errors
    /// As [`create_file`](Self::create_file) and [`File::write_at`].
    pub fn write(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<()> {
        write_all(&self.create_file(path)?, contents.as_ref(), 0)
    }

    /// Copies contents and permission bits of the file `from` to `to`, which is made or replaced.
    /// Holes stay holes. Returns the length in bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] when both are the same file, [`Error::IsDir`]; else as
    /// [`read`](Self::read) and [`write`](Self::write).
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let source = self.open_file(from)?;
        let metadata = source.metadata();
        if metadata.is_dir() {
            return Err(Error::IsDir);
        }
        let mode = metadata.permissions().mode();
        let target = FileOptions::new().write(true).create(true).mode(mode).open(self, to)?;
        if target.metadata().ino() == metadata.ino() {
            return Err(Error::Invalid);
        }
        target.set_len(0)?;
        let len = copy_data(&source, &target)?;
        target.set_len(len)?;
        target.set_permissions(Permissions::from_mode(mode))?;
        Ok(len)
    }
}

/// Copies what is not a hole; the length of the source.
fn copy_data(source: &File, target: &File) -> Result<u64> {
    let inodes = source.volume().inodes();
    let ino = source.metadata().attr().ino;
    let mut buf = vec![0; CHUNK];
    let mut at = 0;
    loop {
        match inodes.seek(ino, at, SeekKind::Data) {
            Ok(data) => at = data,
            Err(Error::NoData) => return Ok(source.metadata().len().max(at)),
            Err(error) => return Err(error),
        }
        let end = inodes.seek(ino, at, SeekKind::Hole)?;
        let len = buf.len().min(to_usize(end - at));
        let read = source.read_at(&mut buf[..len], at)?;
        if read == 0 {
            return Ok(at);
        }
        write_all(target, &buf[..read], at)?;
        at += to_u64(read);
    }
}

fn write_all(file: &File, mut data: &[u8], mut offset: u64) -> Result<()> {
    while !data.is_empty() {
        // Less than all is written only when space ran out: the next call says so.
        let done = file.write_at(data, offset)?;
        data = &data[done..];
        offset += to_u64(done);
    }
    Ok(())
}
