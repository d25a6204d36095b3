//! A regular file or block device.
//!
//! Reads and writes are positioned, so threads share the descriptor without a
//! lock. A flush is `fdatasync`. After a flush has failed every later one fails
//! too: the kernel reports a lost write once and then forgets it, so an `Ok`
//! would be a lie. With `O_DIRECT`, transfers that are not aligned go through
//! an aligned buffer; one that does not fill its first or last unit reads
//! the unit, changes it and writes it back, alone.

mod direct;
mod options;
mod sys;

pub use options::{FileOptions, OpenError};

use crate::{BlockDevice, range};
use direct::Direct;
use nextent_sync::atomic::{AtomicBool, Ordering};
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Below this many bytes zeros are written; above, the range is unmapped.
const UNMAP_AT: u64 = 32 * 1024;

/// A device in a file, from an offset.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    offset: u64,
    size: u64,
    read_only: bool,
    block_device: bool,
    direct: Option<Direct>,
    /// Set for good by the first flush that fails.
    flush_failed: AtomicBool,
}

impl FileDevice {
    /// Opens or creates `path`.
    ///
    /// # Errors
    /// [`OpenError`], naming the path and what stands against it.
    pub fn open(path: impl AsRef<Path>, options: &FileOptions) -> Result<Self, OpenError> {
        options::open(path.as_ref(), options)
    }

    /// Changes the size, and with it the length of the file (regular files
    /// only). Needs the only reference, since others rely on a fixed size.
    ///
    /// # Errors
    /// If the file is a block device or cannot be resized.
    pub fn set_len(&mut self, size: u64) -> io::Result<()> {
        if self.read_only {
            return Err(range::read_only());
        }
        if self.block_device {
            return Err(io::Error::other("a block device cannot be resized"));
        }
        self.file.set_len(self.offset + size)?;
        self.size = size;
        Ok(())
    }

    /// Whether the file is a block device.
    pub fn is_block_device(&self) -> bool {
        self.block_device
    }

    fn place(&self, offset: u64, len: u64) -> io::Result<u64> {
        range::check(self.size, offset, len)?;
        Ok(self.offset + offset)
    }

    fn place_write(&self, offset: u64, len: u64) -> io::Result<u64> {
        if self.read_only {
            return Err(range::read_only());
        }
        self.place(offset, len)
    }

    fn write_zero_bytes(&self, offset: u64, len: u64) -> io::Result<()> {
        let zeros = vec![0; len.min(1 << 20) as usize];
        let mut at = offset;
        while at < offset + len {
            let step = (zeros.len() as u64).min(offset + len - at);
            self.write_at(at, &zeros[..step as usize])?;
            at += step;
        }
        Ok(())
    }
}

impl BlockDevice for FileDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let at = self.place(offset, buf.len() as u64)?;
        match &self.direct {
            Some(direct) => direct.read(&self.file, at, buf),
            None => self.file.read_exact_at(buf, at),
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let at = self.place_write(offset, buf.len() as u64)?;
        match &self.direct {
            Some(direct) => direct.write(&self.file, at, &[IoSlice::new(buf)]),
            None => self.file.write_all_at(buf, at),
        }
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        let at = self.place_write(offset, len)?;
        match &self.direct {
            Some(direct) => direct.write(&self.file, at, bufs),
            None => sys::write_all_vectored(&self.file, at, bufs),
        }
    }

    fn flush(&self) -> io::Result<()> {
        if self.read_only {
            return Ok(());
        }
        if self.flush_failed.load(Ordering::Acquire) {
            return Err(io::Error::other("an earlier flush failed; written data may be lost"));
        }
        let result = self.file.sync_data();
        if result.is_err() {
            self.flush_failed.store(true, Ordering::Release);
        }
        result
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let at = self.place_write(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        // A hint: what the host cannot unmap stays as it is.
        sys::unmap(&self.file, self.block_device, at, len).map(|_| ())
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        let at = self.place_write(offset, len)?;
        if len >= UNMAP_AT && sys::zero(&self.file, self.block_device, at, len)? {
            return Ok(());
        }
        self.write_zero_bytes(offset, len)
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        if offset >= self.size {
            return Ok(None);
        }
        if self.block_device {
            return Ok(Some(offset..self.size));
        }
        let end = self.offset + self.size;
        let Some(data) = sys::next_data(&self.file, self.offset + offset, end)? else {
            return Ok(None);
        };
        Ok(Some(data.start - self.offset..data.end - self.offset))
    }
}
