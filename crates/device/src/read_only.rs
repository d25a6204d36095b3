//! A device that refuses writes.

use crate::{BlockDevice, range};
use std::io;
use std::ops::Range;

/// Reads from the inner device and refuses every write with `EROFS`.
///
/// A flush succeeds, because there is nothing to make stable.
pub struct ReadOnly<D>(D);

impl<D: BlockDevice> ReadOnly<D> {
    /// A read-only device over `inner`.
    pub fn new(inner: D) -> Self {
        Self(inner)
    }

    /// The inner device.
    pub fn into_inner(self) -> D {
        self.0
    }
}

impl<D: BlockDevice> BlockDevice for ReadOnly<D> {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(range::read_only())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Err(range::read_only())
    }

    fn write_zeroes(&self, _: u64, _: u64) -> io::Result<()> {
        Err(range::read_only())
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.0.next_data(offset)
    }
}
