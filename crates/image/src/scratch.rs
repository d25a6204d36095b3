//! Files without a name, and a device in one, for data that is needed for a while.

use nextent_device::BlockDevice;
use nextent_num::to_u64;
use rustix::fs::{Mode, OFlags, open};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Attempts to find an unused name, where a file cannot be made without one.
const NAMES: u32 = 1000;

/// A file in `dir` without a name, for reading and writing.
pub(super) fn scratch_file(dir: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    if let Ok(file) = open(dir, flags, Mode::RUSR | Mode::WUSR) {
        return Ok(file.into());
    }
    // The host's file system cannot make files without names.
    for n in 0..NAMES {
        let path = dir.join(format!(".nextent-{}-{n}", std::process::id()));
        let mut how = OpenOptions::new();
        match how.read(true).write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => {
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// A device of a fixed size in a file that is as long as necessary. It begins with zeros and makes
/// nothing durable.
pub(super) struct ScratchDevice {
    file: File,
    size: u64,
}

impl ScratchDevice {
    /// A device of `size` bytes in a new file in `dir`.
    pub(super) fn new(dir: &Path, size: u64) -> io::Result<Self> {
        Ok(Self { file: scratch_file(dir)?, size })
    }
}

impl BlockDevice for ScratchDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], offset + to_u64(done)) {
                Ok(0) => break,
                Ok(got) => done += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        buf[done..].fill(0);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.file.write_all_at(buf, offset)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        nextent_device::write_zero_bytes(self, offset, len)
    }

    fn is_read_only(&self) -> bool {
        false
    }

    /// Nothing, until data was written.
    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        Ok((offset < self.file.metadata()?.len()).then_some(offset..self.size))
    }
}
