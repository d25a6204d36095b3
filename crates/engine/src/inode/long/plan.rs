//! Where the bytes of a transfer go.

use super::Finished;
use nextent_device::queue::{Piece, Pieces};

/// Where the first bytes of a write go, found out before any of them moves.
#[derive(Debug, Default)]
pub struct Plan {
    /// Places on the device, in order.
    pub(crate) pieces: Pieces,
    /// How many bytes that is.
    pub(crate) bytes: usize,
    /// What is to be done once they are there.
    pub(crate) finished: Finished,
}

impl Plan {
    /// Adds `bytes` at `device`.
    #[inline]
    pub(crate) fn push(&mut self, device: u64, bytes: usize) {
        self.pieces.push(Piece { offset: device, start: self.bytes, len: bytes });
        self.bytes += bytes;
    }
}
