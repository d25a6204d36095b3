//! Memory for transfers: owned and aligned. Its ownership moves with the transfer.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Bytes at an address that suits direct transfers.
///
/// The memory stays in place when the value moves.
pub struct Buffer {
    bytes: NonNull<u8>,
    len: usize,
    layout: Layout,
}

// SAFETY: the value exclusively owns the memory, like a boxed slice of bytes.
unsafe impl Send for Buffer {}
// SAFETY: as for `Send`; shared references cannot change the bytes.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// The alignment of a buffer, in bytes, which suits every device.
    pub const ALIGN: usize = 4096;

    /// `len` bytes of zeros.
    ///
    /// # Panics
    ///
    /// If `len` exceeds half of the address space.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self::aligned(len, Self::ALIGN)
    }

    /// A copy of `bytes`.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut buffer = Self::new(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// `len` bytes of zeros at a multiple of `align`, a power of two.
    pub(crate) fn aligned(len: usize, align: usize) -> Self {
        let layout = Layout::from_size_align(len.max(1), align)
            .expect("an alignment is a power of two and a buffer at most half of all memory");
        // SAFETY: the layout's size is not zero.
        let bytes = unsafe { alloc_zeroed(layout) };
        let bytes = NonNull::new(bytes).unwrap_or_else(|| handle_alloc_error(layout));
        Self { bytes, len, layout }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: `aligned` allocated the memory with this layout, and only this function frees it.
        unsafe { dealloc(self.bytes.as_ptr(), self.layout) }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `aligned` allocated and zeroed at least `len` bytes, and only `self` gives access
        // to them.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}
