//! `BlockDevice` for types that pass all operations on to another device.

use crate::BlockDevice;
use nextent_sync::Arc;

/// Implements [`BlockDevice`] for a type by passing every operation on to another device.
///
/// The generic parameters come first, in brackets. The expression is the device, for `this`.
///
/// # Examples
///
/// ```
/// use nextent_device::{BlockDevice, MemoryDevice, forward_block_device};
///
/// struct Named {
///     name: String,
///     device: MemoryDevice,
/// }
///
/// forward_block_device!([] Named, |this| this.device);
///
/// let disk = Named { name: "disk".to_owned(), device: MemoryDevice::new(4096) };
/// assert_eq!((disk.name.as_str(), disk.size()), ("disk", 4096));
/// ```
#[macro_export]
macro_rules! forward_block_device {
    ([$($parameters:tt)*] $type:ty, |$this:ident| $device:expr) => {
        impl<$($parameters)*> $crate::BlockDevice for $type {
            fn size(&self) -> u64 {
                let $this = self;
                $device.size()
            }
            fn read_at(&self, offset: u64, buf: &mut [u8]) -> ::std::io::Result<()> {
                let $this = self;
                $device.read_at(offset, buf)
            }
            fn write_at(&self, offset: u64, buf: &[u8]) -> ::std::io::Result<()> {
                let $this = self;
                $device.write_at(offset, buf)
            }
            fn write_vectored_at(
                &self,
                offset: u64,
                bufs: &[::std::io::IoSlice<'_>],
            ) -> ::std::io::Result<()> {
                let $this = self;
                $device.write_vectored_at(offset, bufs)
            }
            fn flush(&self) -> ::std::io::Result<()> {
                let $this = self;
                $device.flush()
            }
            fn discard(&self, offset: u64, len: u64) -> ::std::io::Result<()> {
                let $this = self;
                $device.discard(offset, len)
            }
            fn write_zeroes(&self, offset: u64, len: u64) -> ::std::io::Result<()> {
                let $this = self;
                $device.write_zeroes(offset, len)
            }
            fn is_read_only(&self) -> bool {
                let $this = self;
                $device.is_read_only()
            }
            fn queue(&self, depth: usize) -> Box<dyn $crate::DeviceQueue + '_> {
                let $this = self;
                $device.queue(depth)
            }
            fn next_data(
                &self,
                offset: u64,
            ) -> ::std::io::Result<Option<::std::ops::Range<u64>>> {
                let $this = self;
                $device.next_data(offset)
            }
        }
    };
}

forward_block_device!([D: BlockDevice + ?Sized] Arc<D>, |this| (**this));
forward_block_device!([D: BlockDevice + ?Sized] Box<D>, |this| (**this));
forward_block_device!([D: BlockDevice + ?Sized] &D, |this| (**this));
