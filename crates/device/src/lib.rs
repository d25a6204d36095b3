//! Block devices and what their flush promises.

use std::io::{self, IoSlice};

mod memory;

pub use memory::MemoryDevice;

/// Random-access storage of a fixed size, usable from all threads at once.
///
/// A write that returned is seen by every later read. It is on stable storage
/// only after a `flush` that began after the write returned has itself
/// returned `Ok`. Without a flush any subset of the writes, cut at any 512-byte
/// sector, may survive a crash. Concurrent writes to overlapping ranges leave
/// either's bytes, sector by sector.
pub trait BlockDevice: Send + Sync {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Fills `buf` from `offset`. Beyond the end is an error.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes all of `buf` at `offset`. Beyond the end is an error.
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()>;

    /// Writes all of `bufs`, one after another, at `offset`.
    fn write_vectored_at(&self, mut offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        for buf in bufs {
            self.write_at(offset, buf)?;
            offset += buf.len() as u64;
        }
        Ok(())
    }

    /// Makes every write that returned before this call stable.
    fn flush(&self) -> io::Result<()>;

    /// Says that the range is no longer needed; it may read as anything after.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Makes the range read as zeros.
    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool;
}
