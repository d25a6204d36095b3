//! The image of a block, shared by readers, commit and checkpoint.

use nextent_sync::SharedBytes;
use std::ops::Deref;

/// An immutable image of one block. Cloning shares the bytes.
#[derive(Clone)]
pub struct Buf(SharedBytes);

impl Buf {
    /// An image of `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        Self(vec![0; len].into())
    }

    /// The bytes for changing: the image's own if no clone shares them, else a copy.
    #[inline]
    pub(crate) fn make_mut(&mut self) -> &mut [u8] {
        self.0.make_mut()
    }
}

impl From<Vec<u8>> for Buf {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}
