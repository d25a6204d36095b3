//! A device that counts the blocks that are written to it.

use nextent_device::BlockDevice;
use nextent_num::to_u64;
use nextent_sync::Arc;
use nextent_sync::atomic::{AtomicU64, Ordering};
use std::io::{self, IoSlice};
use std::ops::Range;

/// Passes all operations on. A failed write counts, since the device may have done a part of it.
pub(super) struct Counting {
    inner: Arc<dyn BlockDevice>,
    /// Bytes of a block. Relaxed: set before anything is written.
    block_size: AtomicU64,
    /// Relaxed: read after all writers are done.
    written: AtomicU64,
}

impl Counting {
    pub(super) fn new(inner: Arc<dyn BlockDevice>) -> Arc<Self> {
        let (block_size, written) = (AtomicU64::new(1024), AtomicU64::new(0));
        Arc::new(Self { inner, block_size, written })
    }

    /// Counts blocks of `bytes` from now on.
    pub(super) fn set_block_size(&self, bytes: u64) {
        self.block_size.store(bytes, Ordering::Relaxed);
    }

    /// The blocks that writes have touched; a block that was written twice counts twice.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    fn count(&self, offset: u64, len: u64) {
        let size = self.block_size.load(Ordering::Relaxed);
        let blocks = offset.saturating_add(len).div_ceil(size) - offset / size;
        self.written.fetch_add(if len == 0 { 0 } else { blocks }, Ordering::Relaxed);
    }
}

impl BlockDevice for Counting {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.count(offset, to_u64(buf.len()));
        self.inner.write_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.count(offset, bufs.iter().map(|buf| to_u64(buf.len())).sum());
        self.inner.write_vectored_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        self.count(offset, len);
        self.inner.write_zeroes(offset, len)
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.inner.next_data(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nextent_device::MemoryDevice;

    #[test]
    fn blocks_are_counted_whole() {
        let device = Counting::new(Arc::new(MemoryDevice::new(1 << 20)));
        let write = |offset, len: usize| {
            let before = device.written();
            device.write_at(offset, &vec![1; len]).expect("it is in range");
            device.written() - before
        };
        assert_eq!((write(0, 1024), write(1024, 1), write(1023, 2), write(9, 0)), (1, 1, 2, 0));
        device.set_block_size(4096);
        assert_eq!((write(1024, 1024), write(4096, 8193)), (1, 3));
        let parts = [IoSlice::new(&[1; 4000]), IoSlice::new(&[2; 4000])];
        device.write_vectored_at(0, &parts).expect("it is in range");
        device.write_zeroes(0, 4096).expect("it is in range");
        device.flush().expect("memory cannot fail");
        assert_eq!(device.written(), 1 + 1 + 2 + 1 + 3 + 2 + 1);
    }
}
