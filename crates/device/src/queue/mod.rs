//! Asynchronous transfers: submitted now, completed later.
//!
//! A [`DeviceQueue`] belongs to one thread at a time. A device may have any number of queues.
//!
//! Ownership: the queue owns the memory of a transfer from `submit` until `complete` returns it. A
//! [`Buffer`] is moved, never borrowed, so a caller cannot reuse memory that the system still
//! writes to. A dropped queue waits for its transfers in flight.
//!
//! Guarantees, in addition to the contract of [`BlockDevice`]:
//!
//! - A transfer takes effect at any time between `submit` and the call of `complete` that returns
//!   it, in any order relative to other transfers in flight.
//! - A flush covers a write if it began after `complete` has returned the write. Before that, any
//!   part of the write may be on the device, as with a write that has not returned.
//! - An error is reported with its transfer.
//!
//! | queue | device |
//! |---|---|
//! | [`ImmediateQueue`] | devices without a better way: memory, overlays |
//! | `file::ring` | files, with io_uring |
//! | `file::pool` | files, with threads |
//! | `delta::queue` | copy-on-write devices, by the queues of the delta and of the base |
//! | `faulty`, `delayed`, `recorded` | devices that fail, delay or record another device |

mod buffer;
pub(crate) mod delayed;
pub(crate) mod faulty;
mod immediate;
mod pieces;
pub(crate) mod recorded;

pub use buffer::Buffer;
pub use immediate::ImmediateQueue;
pub use pieces::{Piece, Pieces};

use crate::BlockDevice;
use std::io;

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the device to the buffer.
    Read,
    /// From the buffer to the device.
    Write,
}

/// A transfer, and the memory for it.
#[derive(Debug)]
pub struct Transfer {
    /// Chosen by the caller and returned with the result.
    pub tag: u64,
    /// The direction.
    pub direction: Direction,
    /// The memory.
    pub buffer: Buffer,
    /// The parts of the memory and their places on the device.
    pub pieces: Pieces,
}

/// A completed transfer.
#[derive(Debug)]
pub struct Completed {
    /// The transfer as submitted. After a failed read the buffer's contents are unspecified.
    pub transfer: Transfer,
    /// Whether the transfer is complete. After an error, any part of it may be.
    pub result: io::Result<()>,
}

/// Transfers in flight on one device.
pub trait DeviceQueue: Send {
    /// Takes ownership of a transfer. The queue may delay its start until it has more transfers;
    /// `complete(0, ..)` starts it. May block if more transfers are in flight than the queue's
    /// depth.
    fn submit(&mut self, transfer: Transfer);

    /// Waits until at least `least` transfers are complete (or all in flight, if they are fewer),
    /// and appends all complete ones to `done`.
    fn complete(&mut self, least: usize, done: &mut Vec<Completed>);

    /// The number of submitted transfers that `complete` has not returned.
    fn in_flight(&self) -> usize;
}

impl Transfer {
    /// Performs the transfer with blocking calls.
    pub(crate) fn perform<D: BlockDevice + ?Sized>(&mut self, device: &D) -> io::Result<()> {
        for piece in self.pieces.as_slice() {
            let Some(memory) = self.buffer.get_mut(piece.of_buffer()) else {
                return Err(outside());
            };
            match self.direction {
                Direction::Read => device.read_at(piece.offset, memory)?,
                Direction::Write => device.write_at(piece.offset, memory)?,
            }
        }
        Ok(())
    }

    /// Whether all pieces are within the buffer.
    #[cfg(target_os = "linux")]
    pub(crate) fn fits(&self) -> bool {
        let len = self.buffer.len();
        let inside =
            |piece: &Piece| piece.start.checked_add(piece.len).is_some_and(|end| end <= len);
        self.pieces.as_slice().iter().all(inside)
    }
}

/// The error of a piece beyond its buffer.
pub(crate) fn outside() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a piece reaches beyond its buffer")
}
