//! Writes the data of a delta to its base and empties the delta.
//!
//! 1. The state becomes *committing*, with the checksum that the samples of the base will have.
//! 2. The samples are written to the base and flushed. From then on other deltas refuse the base.
//! 3. All units of the delta are written to the base and flushed.
//! 4. The bits are cleared and flushed, and the data is discarded.
//! 5. The state becomes *in use*.
//!
//! After a crash in step 2 to 4 the overlay still reads the same: a unit that has lost its bit is
//! in the base. A second run completes the commit. Until then the delta is read only, since the
//! checksum is of what the overlay reads.

use super::format::{BITMAP_AT, PAGE, SAMPLE, State};
use super::{Bitmap, DeltaDevice, DeltaError, Header};
use crate::{BlockDevice, range};
use nextent_num::{to_u64, to_usize};
use nextent_sync::atomic::Ordering;
use std::io;
use std::ops::Range;

/// The most bytes of one read.
const STEP: u64 = 1 << 20;

impl<B: BlockDevice, S: BlockDevice> DeltaDevice<B, S> {
    /// Writes all data of the delta to the base and empties the delta. Returns the bytes written.
    /// After an error or a crash another call completes it.
    ///
    /// # Errors
    ///
    /// An error of a device, or the base is too small. Damage of the bitmap is found before the
    /// first write.
    pub fn commit(&mut self) -> Result<u64, DeltaError> {
        let (size, base) = (self.header.layout.size, self.base.size());
        if size > base {
            return Err(DeltaError::TooLarge { size, base });
        }
        if self.base.is_read_only() || self.store.is_read_only() {
            return Err(range::read_only().into());
        }
        self.bitmap.load_all(&self.store)?;
        self.flush()?;
        let bytes = self.delta_bytes()?;
        if !self.is_committing() {
            if bytes == 0 {
                return Ok(0);
            }
            let identity = self.merged_identity()?;
            self.enter(Header { state: State::Committing, identity, ..self.header.clone() })?;
        }
        for at in &self.header.samples {
            self.copy_to_base(*at..at.saturating_add(SAMPLE).min(size))?;
        }
        self.base.flush()?;
        self.copy_to_base(0..size)?;
        self.base.flush()?;
        self.empty()?;
        Ok(bytes)
    }

    fn enter(&mut self, header: Header) -> io::Result<()> {
        // Also after an error: the new header may be on the device.
        self.writes.store(false, Ordering::Release);
        self.write_header(&header)?;
        self.writes.store(header.state == State::InUse, Ordering::Release);
        self.header = header;
        Ok(())
    }

    fn copy_to_base(&self, bytes: Range<u64>) -> io::Result<()> {
        let mut at = bytes.start;
        while at < bytes.end {
            let (present, end) = self.run(at, bytes.end)?;
            if present {
                self.copy_run(at..end)?;
            }
            at = end;
        }
        Ok(())
    }

    /// Copies bytes of which all are in the delta. Holes of the file become zeros of the base.
    fn copy_run(&self, bytes: Range<u64>) -> io::Result<()> {
        let mut buf = Vec::new();
        let mut at = bytes.start;
        while at < bytes.end {
            let data = self.store.next_data(self.place(at))?;
            let start = data.as_ref().map_or(bytes.end, |data| data.start - self.place(0));
            let start = start.min(bytes.end);
            if start > at {
                self.base.write_zeroes(at, start - at)?;
            }
            let end = data.map_or(start, |data| data.end - self.place(0)).min(bytes.end);
            at = start;
            while at < end {
                buf.resize(to_usize(STEP.min(end - at)), 0);
                self.store.read_at(self.place(at), &mut buf)?;
                self.base.write_at(at, &buf)?;
                at += to_u64(buf.len());
            }
        }
        Ok(())
    }

    /// Clears all bits, whose units are in the base, and ends the commit.
    fn empty(&mut self) -> io::Result<()> {
        let layout = self.header.layout;
        self.store.write_zeroes(BITMAP_AT, layout.pages * to_u64(PAGE))?;
        self.store.flush()?;
        self.bitmap = Bitmap::new(&layout);
        match self.store.discard(layout.data_at, layout.size) {
            // The data is without use and stays.
            Err(error) if error.kind() != io::ErrorKind::Unsupported => return Err(error),
            _ => {}
        }
        self.enter(Header { state: State::InUse, ..self.header.clone() })
    }
}
