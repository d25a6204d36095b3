//! A device of any size that keeps nothing.

use std::io;
use std::ops::Range;

use nextent_device::BlockDevice;

/// Accepts all writes and reads as zeros.
pub(super) struct Void;

impl BlockDevice for Void {
    fn size(&self) -> u64 {
        u64::MAX
    }

    fn read_at(&self, _: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.fill(0);
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn write_zeroes(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn next_data(&self, _: u64) -> io::Result<Option<Range<u64>>> {
        Ok(None)
    }
}
