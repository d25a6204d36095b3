//! A part of another device, such as a partition.

use crate::queue::{Completed, DeviceQueue, Piece, Pieces, Transfer};
use crate::{BlockDevice, range};
use nextent_num::to_u64;
use std::io::{self, IoSlice};
use std::ops::Range;

/// A range of the bytes of another device. Its offset 0 is the start of the range.
///
/// # Examples
///
/// ```
/// use nextent_device::{BlockDevice, DevicePart, MemoryDevice};
///
/// let part = DevicePart::new(MemoryDevice::new(1 << 20), 4096..8192)?;
/// part.write_at(0, b"text")?;
/// assert_eq!((part.size(), part.next_data(0)?.map(|range| range.start)), (4096, Some(0)));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct DevicePart<D> {
    inner: D,
    offset: u64,
    size: u64,
}

impl<D: BlockDevice> DevicePart<D> {
    /// The bytes `range` of `inner`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the range reaches beyond the end of `inner`.
    pub fn new(inner: D, range: Range<u64>) -> io::Result<Self> {
        let size = range.end.saturating_sub(range.start);
        range::check(inner.size(), range.start, size)?;
        Ok(Self { inner, offset: range.start, size })
    }

    /// The other device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The offset in the other device.
    fn place(&self, offset: u64, len: u64) -> io::Result<u64> {
        range::check(self.size, offset, len)?;
        Ok(self.offset + offset)
    }
}

impl<D: BlockDevice> BlockDevice for DevicePart<D> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(self.place(offset, to_u64(buf.len()))?, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.inner.write_at(self.place(offset, to_u64(buf.len()))?, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let len = bufs.iter().map(|buf| to_u64(buf.len())).sum();
        self.inner.write_vectored_at(self.place(offset, len)?, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(self.place(offset, len)?, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.write_zeroes(self.place(offset, len)?, len)
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        if offset >= self.size {
            return Ok(None);
        }
        let end = self.offset + self.size;
        let found = self.inner.next_data(self.offset + offset)?.filter(|data| data.start < end);
        Ok(found.map(|data| data.start - self.offset..data.end.min(end) - self.offset))
    }

    fn queue(&self, depth: usize) -> Box<dyn DeviceQueue + '_> {
        let inner = self.inner.queue(depth);
        Box::new(PartQueue { inner, offset: self.offset, size: self.size, refused: Vec::new() })
    }
}

/// Transfers of a part.
struct PartQueue<'d> {
    inner: Box<dyn DeviceQueue + 'd>,
    offset: u64,
    size: u64,
    /// Transfers beyond the end of the part.
    refused: Vec<Completed>,
}

/// The pieces at other places on the device.
pub(crate) fn moved(pieces: &Pieces, to: impl Fn(u64) -> u64) -> Pieces {
    let mut all = Pieces::default();
    for piece in pieces.as_slice() {
        all.push(Piece { offset: to(piece.offset), ..*piece });
    }
    all
}

impl DeviceQueue for PartQueue<'_> {
    fn submit(&mut self, mut transfer: Transfer) {
        let check = |piece: &Piece| range::check(self.size, piece.offset, to_u64(piece.len));
        match transfer.pieces.as_slice().iter().try_for_each(check) {
            Ok(()) => {
                transfer.pieces = moved(&transfer.pieces, |offset| offset + self.offset);
                self.inner.submit(transfer);
            }
            Err(error) => self.refused.push(Completed { transfer, result: Err(error) }),
        }
    }

    fn complete(&mut self, least: usize, done: &mut Vec<Completed>) {
        let first = done.len();
        self.inner.complete(least.saturating_sub(self.refused.len()), done);
        for completed in &mut done[first..] {
            let pieces = &completed.transfer.pieces;
            completed.transfer.pieces = moved(pieces, |offset| offset - self.offset);
        }
        done.append(&mut self.refused);
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.refused.len()
    }
}
