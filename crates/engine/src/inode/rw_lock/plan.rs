//! Where the bytes of a write go.

use super::PendingConversion;
use nextent_device::queue::{Piece, Pieces};

/// Where the first bytes of a write go, known before any of them is written.
#[derive(Debug, Default)]
pub struct Plan {
    /// Ranges of the device, in order.
    pub(crate) pieces: Pieces,
    /// The sum of their lengths.
    pub(crate) bytes: usize,
    /// The conversion to do once the data is on the device.
    pub(crate) conversion: PendingConversion,
}

impl Plan {
    /// Adds `bytes` at `device`.
    #[inline]
    pub(crate) fn push(&mut self, device: u64, bytes: usize) {
        self.pieces.push(Piece { offset: device, start: self.bytes, len: bytes });
        self.bytes += bytes;
    }
}
