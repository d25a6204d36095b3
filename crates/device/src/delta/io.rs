//! Reads and writes of a copy-on-write device.

use super::DeltaDevice;
use super::UNIT_LOCKS;
use super::format::{BITMAP_AT, UNIT, WORD_UNITS};
use crate::{BlockDevice, DeviceQueue, SECTOR, range};
use nextent_num::{to_u64, to_usize};
use nextent_sync::MutexGuard;
use nextent_sync::atomic::Ordering;
use std::io::{self, IoSlice};
use std::ops::Range;

/// Bytes of the units of a word of the bitmap.
const WORD_BYTES: u64 = WORD_UNITS * UNIT;

/// Units of a word that a write covers, at least in part. Not empty.
#[derive(Clone, Copy)]
struct Covered {
    /// The bytes.
    start: u64,
    end: u64,
    word: u64,
    bits: u64,
}

impl Covered {
    fn of(start: u64, len: u64) -> Self {
        let end = start + len;
        let (first, last) = (start / UNIT % WORD_UNITS, (end - 1) / UNIT % WORD_UNITS);
        let bits = (u64::MAX << first) & (u64::MAX >> (WORD_UNITS - 1 - last));
        Self { start, end, word: start / WORD_BYTES, bits }
    }

    fn is_in(&self, at: u64, bits: u64) -> bool {
        bits >> (at / UNIT % WORD_UNITS) & 1 == 1
    }

    /// The bytes to write: those of the caller, and the rest of the units at both ends if they are
    /// `absent` and not covered as a whole.
    fn widened(&self, absent: u64, size: u64) -> Range<u64> {
        let start = match self.is_in(self.start, absent) {
            true => self.start / UNIT * UNIT,
            false => self.start,
        };
        let end = match self.is_in(self.end - 1, absent) {
            true => (self.end.next_multiple_of(UNIT)).min(size).max(self.end),
            false => self.end,
        };
        start..end
    }
}

impl<B: BlockDevice, S: BlockDevice> DeltaDevice<B, S> {
    /// The offset in the delta file of a byte of the device.
    pub(super) fn place(&self, offset: u64) -> u64 {
        self.header.layout.data_at + offset
    }

    pub(super) fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        range::check(self.header.layout.size, offset, len)
    }

    fn check_write(&self, offset: u64, len: u64) -> io::Result<()> {
        match self.is_read_only() {
            true => Err(range::read_only()),
            false => self.check(offset, len),
        }
    }

    /// Whether the byte at `offset` is in the delta, and up to where the same is true, at most
    /// `end`.
    pub(super) fn run(&self, offset: u64, end: u64) -> io::Result<(bool, u64)> {
        let (first, last) = (offset / UNIT, end.div_ceil(UNIT));
        let (present, to) = self.bitmap.run(&self.store, first, last)?;
        Ok((present, (to * UNIT).min(end)))
    }

    /// Reads from the base. Bytes beyond its end are zeros.
    pub(super) fn read_base(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        read_or_zeros(&self.base, offset, buf)
    }

    fn base_bytes(&self, bytes: Range<u64>) -> io::Result<Vec<u8>> {
        let mut buf = vec![0; to_usize(bytes.end - bytes.start)];
        self.read_base(bytes.start, &mut buf)?;
        Ok(buf)
    }

    fn lock_word(&self, word: u64) -> MutexGuard<'_, ()> {
        self.units[to_usize(word % UNIT_LOCKS)].lock()
    }

    /// Writes within the units of one word.
    fn write_word(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let covered = Covered::of(offset, to_u64(buf.len()));
        let present = self.bitmap.word(&self.store, covered.word)?;
        if present & covered.bits == covered.bits {
            return self.store.write_at(self.place(offset), buf);
        }
        let _first = self.lock_word(covered.word);
        let absent = covered.bits & !self.bitmap.word(&self.store, covered.word)?;
        let wide = covered.widened(absent, self.header.layout.size);
        let before = self.base_bytes(wide.start..covered.start)?;
        let after = self.base_bytes(covered.end..wide.end)?;
        let at = self.place(wide.start);
        match before.is_empty() && after.is_empty() {
            true => self.store.write_at(at, buf)?,
            false => {
                let all = [&before[..], buf, &after[..]].map(IoSlice::new);
                self.store.write_vectored_at(at, &all)?;
            }
        }
        self.bitmap.set(covered.word, absent);
        Ok(())
    }

    /// Writes zeros over whole units of one word.
    fn zero_word(&self, offset: u64, len: u64) -> io::Result<()> {
        let covered = Covered::of(offset, len);
        let _first = self.lock_word(covered.word);
        let absent = covered.bits & !self.bitmap.word(&self.store, covered.word)?;
        if absent == covered.bits && self.is_zero_in_base(offset..offset + len)? {
            return Ok(());
        }
        self.store.write_zeroes(self.place(offset), len)?;
        self.bitmap.set(covered.word, absent);
        Ok(())
    }

    fn is_zero_in_base(&self, bytes: Range<u64>) -> io::Result<bool> {
        Ok(self.base.next_data(bytes.start)?.is_none_or(|data| data.start >= bytes.end))
    }

    /// Writes sectors of the bitmap, adjacent ones together.
    fn write_sectors(&self, sectors: &[(u64, [u8; SECTOR])]) -> io::Result<()> {
        for run in sectors.chunk_by(|(one, _), (next, _)| one + 1 == *next) {
            let bytes: Vec<u8> = run.iter().flat_map(|(_, bytes)| *bytes).collect();
            self.store.write_at(BITMAP_AT + run[0].0 * to_u64(SECTOR), &bytes)?;
        }
        self.store.flush()
    }
}

/// Reads a range that may reach beyond the end of `device`, where it reads zeros.
pub(super) fn read_or_zeros(
    device: &(impl BlockDevice + ?Sized),
    offset: u64,
    buf: &mut [u8],
) -> io::Result<()> {
    let within = device.size().saturating_sub(offset).min(to_u64(buf.len()));
    let (found, beyond) = buf.split_at_mut(to_usize(within));
    beyond.fill(0);
    match found.is_empty() {
        true => Ok(()),
        false => device.read_at(offset, found),
    }
}

impl<B: BlockDevice, S: BlockDevice> BlockDevice for DeltaDevice<B, S> {
    fn size(&self) -> u64 {
        self.header.layout.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, to_u64(buf.len()))?;
        let end = offset + to_u64(buf.len());
        let mut at = offset;
        while at < end {
            let (present, to) = self.run(at, end)?;
            let part = &mut buf[to_usize(at - offset)..to_usize(to - offset)];
            match present {
                true => self.store.read_at(self.place(at), part)?,
                false => self.read_base(at, part)?,
            }
            at = to;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let len = to_u64(buf.len());
        self.check_write(offset, len)?;
        if len > WORD_BYTES && self.run(offset, offset + len)? == (true, offset + len) {
            return self.store.write_at(self.place(offset), buf);
        }
        range::pieces(to_usize(WORD_BYTES), offset, len)
            .try_for_each(|piece| self.write_word(offset + piece.done, &buf[piece.of_buffer()]))
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let len = bufs.iter().map(|buf| to_u64(buf.len())).sum();
        self.check_write(offset, len)?;
        if len > 0 && self.run(offset, offset + len)? == (true, offset + len) {
            return self.store.write_vectored_at(self.place(offset), bufs);
        }
        let all: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        self.write_at(offset, &all)
    }

    fn flush(&self) -> io::Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        let _one = self.flushing.lock();
        // Before the flush of the data, which then covers the data of their units.
        let sectors = self.bitmap.take_changed();
        let mut flushed = self.store.flush();
        if flushed.is_ok() && !sectors.is_empty() {
            flushed = self.write_sectors(&sectors);
        }
        if flushed.is_err() {
            self.bitmap.put_back(&sectors);
        }
        flushed
    }

    /// Discards whole units that are in the delta. They stay there: their bits cannot be cleared
    /// before the discard is stable.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_write(offset, len)?;
        let (mut at, end) = (offset.next_multiple_of(UNIT), (offset + len) / UNIT * UNIT);
        while at < end {
            let (present, to) = self.run(at, end)?;
            if present {
                self.store.discard(self.place(at), to - at)?;
            }
            at = to;
        }
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_write(offset, len)?;
        let zeros = [0; 4096];
        for piece in range::pieces(to_usize(WORD_BYTES), offset, len) {
            let (at, end) = (offset + piece.done, offset + piece.done + to_u64(piece.len));
            let whole_end = if end == self.size() { end } else { end / UNIT * UNIT };
            let whole = at.next_multiple_of(UNIT).min(end)..whole_end;
            if whole.start >= whole.end {
                for part in range::pieces(zeros.len(), at, end - at) {
                    self.write_word(at + part.done, &zeros[..part.len])?;
                }
                continue;
            }
            let parts = [at..whole.start, whole.end..end];
            for part in parts.into_iter().filter(|part| !part.is_empty()) {
                self.write_word(part.start, &zeros[..to_usize(part.end - part.start)])?;
            }
            self.zero_word(whole.start, whole.end - whole.start)?;
        }
        Ok(())
    }

    fn is_read_only(&self) -> bool {
        !self.writes.load(Ordering::Acquire)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        let (mut at, size) = (offset, self.size());
        while at < size {
            let (present, end) = self.run(at, size)?;
            let found = match present {
                true => self
                    .store
                    .next_data(self.place(at))?
                    .map(|data| data.start - self.place(0)..data.end - self.place(0)),
                false => self.base.next_data(at)?,
            };
            if let Some(data) = found.filter(|data| data.start < end) {
                return Ok(Some(data.start..data.end.min(end)));
            }
            at = end;
        }
        Ok(None)
    }

    fn queue(&self, depth: usize) -> Box<dyn DeviceQueue + '_> {
        Box::new(super::queue::DeltaQueue::new(self, depth))
    }
}
