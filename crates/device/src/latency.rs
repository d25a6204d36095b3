//! A device that delays the operations of an inner device.
//!
//! Each read, write and flush takes longer by a fixed time. Delays of concurrent operations
//! overlap, as on a device with deep queues. The device takes no lock and never fails itself.

use crate::BlockDevice;
use crate::queue::{DeviceQueue, delayed::DelayedQueue};
use nextent_sync::{Duration, thread};
use std::io::{self, IoSlice};
use std::ops::Range;

/// Passes operations on after a delay.
pub struct LatencyDevice<D> {
    inner: D,
    delay: Duration,
}

impl<D: BlockDevice> LatencyDevice<D> {
    /// A device that takes `delay` longer than `inner` for each read, write and flush.
    pub fn new(inner: D, delay: Duration) -> Self {
        Self { inner, delay }
    }

    /// The inner device.
    pub fn inner(&self) -> &D {
        &self.inner
    }
}

impl<D: BlockDevice> BlockDevice for LatencyDevice<D> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        thread::sleep(self.delay);
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        thread::sleep(self.delay);
        self.inner.write_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        thread::sleep(self.delay);
        self.inner.write_vectored_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        thread::sleep(self.delay);
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.write_zeroes(offset, len)
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.inner.next_data(offset)
    }

    fn queue(&self, depth: usize) -> Box<dyn DeviceQueue + '_> {
        Box::new(DelayedQueue::new(self.inner.queue(depth), self.delay, depth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn each_operation_is_delayed() {
        let delay = Duration::from_millis(5);
        let device = LatencyDevice::new(MemoryDevice::new(1 << 20), delay);
        let began = nextent_sync::now();
        device.write_at(4096, &[7; 512]).unwrap();
        let mut buf = [0; 512];
        device.read_at(4096, &mut buf).unwrap();
        device.flush().unwrap();
        assert!(began.elapsed() >= 3 * delay);
        assert_eq!(buf, [7; 512]);
        assert_eq!((device.size(), device.is_read_only()), (1 << 20, false));
    }
}
