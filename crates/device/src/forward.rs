//! `BlockDevice` for pointers to devices.

use crate::{BlockDevice, DeviceQueue};
use nextent_sync::Arc;
use std::io::{self, IoSlice};
use std::ops::Range;

macro_rules! forward {
    ($pointer:ty) => {
        impl<D: BlockDevice + ?Sized> BlockDevice for $pointer {
            fn size(&self) -> u64 {
                (**self).size()
            }
            fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
                (**self).read_at(offset, buf)
            }
            fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
                (**self).write_at(offset, buf)
            }
            fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
                (**self).write_vectored_at(offset, bufs)
            }
            fn flush(&self) -> io::Result<()> {
                (**self).flush()
            }
            fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
                (**self).discard(offset, len)
            }
            fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
                (**self).write_zeroes(offset, len)
            }
            fn is_read_only(&self) -> bool {
                (**self).is_read_only()
            }
            fn queue(&self, depth: usize) -> Box<dyn DeviceQueue + '_> {
                (**self).queue(depth)
            }
            fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
                (**self).next_data(offset)
            }
        }
    };
}

forward!(Arc<D>);
forward!(Box<D>);
forward!(&D);
