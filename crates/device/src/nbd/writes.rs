//! Writes of an NBD device: deferred ones, and those that wait for the server.

use super::behind::Limits;
use super::negotiate::Export;
use super::wire::{Command, Request};
use super::{LONGEST_RANGE, MOST_UNFLUSHED, NbdDevice};
use crate::BlockDevice;
use nextent_num::{to_u64, to_usize};
use std::borrow::Cow;
use std::io::{self, IoSlice};
use std::ops::Range;

/// How much is deferred for an export.
pub(super) fn limits(export: &Export) -> Limits {
    let largest = u64::from(export.largest);
    Limits {
        extent: to_usize(largest.min(256 << 10)),
        pending: 4 << 20,
        in_flight: 16 << 20,
        requests: 64,
        largest: largest.min(1 << 20),
    }
}

/// The bytes of slices, one after another.
pub(super) fn concat<'b>(bufs: &'b [IoSlice<'_>]) -> Cow<'b, [u8]> {
    if let [one] = bufs {
        return Cow::Borrowed(one);
    }
    let mut all = Vec::with_capacity(bufs.iter().map(|buf| buf.len()).sum());
    bufs.iter().for_each(|buf| all.extend_from_slice(buf));
    Cow::Owned(all)
}

impl NbdDevice {
    /// Writes whole blocks.
    pub(super) fn write_blocks(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let len: u64 = bufs.iter().map(|buf| to_u64(buf.len())).sum();
        if self.defers {
            self.bound_unflushed(to_usize(len) + self.behind.pending_bytes())?;
            return self.behind.write(&self.connections, offset..offset + len, bufs);
        }
        let data = concat(bufs);
        for request in self.transfers(Command::Write, offset..offset + len) {
            let at = to_usize(request.offset - offset);
            let data = &data[at..at + to_usize(request.len)];
            let record = self.begin_write(request.offset, data)?;
            let done = self.connections.perform(&request, data).map(drop);
            self.end_change(&request);
            self.end_write(record, done.is_ok());
            done?;
        }
        Ok(())
    }

    /// Whether writes are recorded, so that new connections can repeat them.
    pub(super) fn records(&self) -> bool {
        self.connections.records() && !self.stable_writes
    }

    /// Flushes if `more` bytes would be too many in the records.
    fn bound_unflushed(&self, more: usize) -> io::Result<()> {
        let full = self.records()
            && self.connections.unflushed.lock().bytes().saturating_add(more) > MOST_UNFLUSHED;
        if full { self.flush() } else { Ok(()) }
    }

    /// Records a write before it is sent; its number.
    pub(super) fn begin_write(&self, offset: u64, data: &[u8]) -> io::Result<Option<u64>> {
        if !self.records() {
            return Ok(None);
        }
        self.bound_unflushed(data.len())?;
        Ok(Some(self.connections.unflushed.lock().begin_write(offset, data)))
    }

    pub(super) fn end_write(&self, record: Option<u64>, succeeded: bool) {
        if let Some(record) = record {
            let mut unflushed = self.connections.unflushed.lock();
            if succeeded { unflushed.end(record) } else { unflushed.fail(record) }
        }
    }

    /// What was read ahead of a request that has changed the export is old.
    pub(super) fn end_change(&self, request: &Request) {
        let range = request.offset..request.offset + u64::from(request.len);
        self.connections.ahead.cut(&range);
    }

    /// Zeroes whole blocks by the server's command for it.
    pub(super) fn zero_blocks(&self, range: Range<u64>) -> io::Result<()> {
        for request in self.requests(Command::WriteZeroes, range, LONGEST_RANGE) {
            let part = request.offset..request.offset + u64::from(request.len);
            if self.defers {
                let nothing = Cow::Borrowed(&[][..]);
                self.behind.replace(&self.connections, Command::WriteZeroes, part, nothing)?;
                continue;
            }
            let record =
                self.records().then(|| self.connections.unflushed.lock().begin_zeros(part));
            let done = self.connections.perform(&request, &[]).map(drop);
            self.end_change(&request);
            self.end_write(record, done.is_ok());
            done?;
        }
        Ok(())
    }

    /// Zeroes a range by writes.
    pub(super) fn write_zeros(&self, range: Range<u64>) -> io::Result<()> {
        const CHUNK: u64 = 1 << 20;
        let zeros = vec![0; to_usize(CHUNK.min(range.end - range.start))];
        let mut at = range.start;
        while at < range.end {
            let len = CHUNK.min(range.end - at);
            self.write_at(at, &zeros[..to_usize(len)])?;
            at += len;
        }
        Ok(())
    }

    /// Writes parts of blocks, which are read before.
    pub(super) fn write_parts(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let data = concat(bufs);
        let _exclusive = self.partial.write();
        let wide = self.widened(offset, to_u64(data.len()));
        let mut blocks = vec![0; to_usize(wide.end - wide.start)];
        self.read_blocks(wide.start, &mut blocks, false)?;
        let at = to_usize(offset - wide.start);
        blocks[at..at + data.len()].copy_from_slice(&data);
        self.write_blocks(wide.start, &[IoSlice::new(&blocks)])
    }

    /// Flushes: waits for all earlier writes, and lets the server make them stable.
    pub(super) fn flush_writes(&self) -> io::Result<()> {
        if self.is_read_only() || self.stable_writes {
            return Ok(());
        }
        self.behind.drain(&self.connections)?;
        let mark = self.records().then(|| self.connections.unflushed.lock().mark());
        self.connections.perform(&Request::new(Command::Flush, 0, 0), &[])?;
        if let Some(mark) = mark {
            self.connections.unflushed.lock().flushed(&mark);
        }
        Ok(())
    }
}

impl Drop for NbdDevice {
    fn drop(&mut self) {
        // Without a flush, writes may be lost. It is not worth a wait for new connections.
        if self.connections.are_usable() {
            let _ = self.behind.drain(&self.connections);
        }
    }
}
