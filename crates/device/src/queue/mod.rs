//! Transfers that are submitted now and completed later.
//!
//! A [`DeviceQueue`] belongs to one thread at a time, any number of them to one device. The device
//! has the memory of a transfer from `submit` until `complete` hands it back: a [`Buffer`] is
//! moved in and out, never borrowed, so nothing that a caller does (or forgets) lets the system
//! write to memory that is used for something else. A queue that is dropped waits for what is in
//! flight.
//!
//! What flushing promises, beside the contract of [`BlockDevice`]: a transfer takes effect at any
//! time between `submit` and the call of `complete` that hands it back, in no order to other
//! transfers in flight, and a write is covered by a flush that began after `complete` has handed
//! it back. Until then any part of it may be on the device, or none, as with a write that has not
//! returned. An error is told with the transfer it belongs to.
//!
//! - [`AtOnce`]: whatever has no better way does the transfer in `submit` (memory, overlays).
//! - `file::ring`: io_uring; `file::pool`: threads, where there is no io_uring.
//! - Devices that hold up, record or fail others do so to the queues of those.

mod at_once;
mod buffer;
pub(crate) mod faulty;
pub(crate) mod late;
mod pieces;
pub(crate) mod recorded;

pub use at_once::AtOnce;
pub use buffer::Buffer;
pub use pieces::{Piece, Pieces};

use crate::BlockDevice;
use std::io;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the device to the buffer.
    Read,
    /// From the buffer to the device.
    Write,
}

/// What a queue is asked to do, with the memory for it.
#[derive(Debug)]
pub struct Transfer {
    /// Handed back with the outcome; the queue does not look at it.
    pub tag: u64,
    /// Which way.
    pub direction: Direction,
    /// The memory.
    pub buffer: Buffer,
    /// Which parts of the memory belong where on the device.
    pub pieces: Pieces,
}

/// A transfer that is over.
#[derive(Debug)]
pub struct Completed {
    /// As it was submitted; of what could not be read the buffer holds anything.
    pub transfer: Transfer,
    /// Whether all of it was done; after an error any part may have been.
    pub result: io::Result<()>,
}

/// Transfers in flight on one device.
pub trait DeviceQueue: Send {
    /// Takes a transfer over. It may be held back until more are there or `complete` is called;
    /// `complete(0, ..)` lets it begin at any rate. May wait if more are in flight than the queue
    /// was made for.
    fn submit(&mut self, transfer: Transfer);

    /// Waits until at least `least` transfers (or all in flight, if they are fewer) are over, and
    /// appends all that are.
    fn complete(&mut self, least: usize, done: &mut Vec<Completed>);

    /// Transfers that were submitted and not yet handed back.
    fn in_flight(&self) -> usize;
}

impl Transfer {
    /// Does the transfer by the calls that wait.
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

    /// Whether all pieces lie within the buffer.
    pub(crate) fn fits(&self) -> bool {
        let len = self.buffer.len();
        let inside =
            |piece: &Piece| piece.start.checked_add(piece.len).is_some_and(|end| end <= len);
        self.pieces.as_slice().iter().all(inside)
    }
}

/// The error of a piece that its buffer does not hold.
pub(crate) fn outside() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a piece reaches beyond its buffer")
}
