//! The writes since the last flush, so that a new connection can repeat them.
//!
//! A server that ends may lose writes that it has completed but not flushed. A client that connects
//! again repeats them before it goes on, so a flush that succeeds later covers them.
//!
//! A write is recorded before it is sent, and a later one replaces what it overlaps. So what is
//! recorded never overlaps, and can be repeated in any order. Repeating a write that is still in
//! flight is harmless: until it ends it may be on the device or not. A deferred write whose reply
//! is lost has been performed once new connections have repeated its record.
//!
//! A flush removes the records of the writes that had ended when it began.

use nextent_num::{to_u64, to_usize};
use nextent_sync::Arc;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

/// What a write makes of its range.
#[derive(Clone, Debug)]
enum Content {
    /// These bytes, from an index on.
    Bytes(Arc<Vec<u8>>, usize),
    Zeros,
}

/// A part of a write.
#[derive(Clone, Debug)]
struct Record {
    len: u64,
    content: Content,
    write: u64,
}

/// A part of a write to repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    Bytes(u64, Vec<u8>),
    Zeros(Range<u64>),
}

/// The state when a flush began.
pub(super) struct Mark {
    next: u64,
    in_flight: HashSet<u64>,
}

/// The writes since the last flush.
#[derive(Default)]
pub(super) struct Unflushed {
    next: u64,
    in_flight: HashSet<u64>,
    /// By offset.
    records: BTreeMap<u64, Record>,
    /// Bytes of data in the records.
    bytes: usize,
}

impl Unflushed {
    /// Records a write that is about to be sent; its number.
    pub(super) fn begin_write(&mut self, offset: u64, data: &[u8]) -> u64 {
        self.begin_shared(offset, Arc::new(data.to_vec()))
    }

    /// Records a write that is about to be sent, without a copy; its number.
    pub(super) fn begin_shared(&mut self, offset: u64, data: Arc<Vec<u8>>) -> u64 {
        self.begin(offset, to_u64(data.len()), Content::Bytes(data, 0))
    }

    /// Records a request to zero a range.
    pub(super) fn begin_zeros(&mut self, range: Range<u64>) -> u64 {
        self.begin(range.start, range.end - range.start, Content::Zeros)
    }

    /// Records that the content of a range does not matter any more.
    pub(super) fn forget(&mut self, range: Range<u64>) {
        self.remove(&range);
    }

    fn begin(&mut self, offset: u64, len: u64, content: Content) -> u64 {
        let write = self.next;
        self.next += 1;
        self.in_flight.insert(write);
        self.remove(&(offset..offset + len));
        self.insert(offset, Record { len, content, write });
        write
    }

    /// Notes that a write has ended.
    pub(super) fn end(&mut self, write: u64) {
        self.in_flight.remove(&write);
    }

    /// Notes that a write has failed. What it left is unknown, so it is not repeated.
    pub(super) fn fail(&mut self, write: u64) {
        self.in_flight.remove(&write);
        self.retain(|record| record.write != write);
    }

    /// Bytes of memory for data.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The state before a flush is sent.
    pub(super) fn mark(&self) -> Mark {
        Mark { next: self.next, in_flight: self.in_flight.clone() }
    }

    /// Removes what a flush has made stable that began at `mark`.
    pub(super) fn flushed(&mut self, mark: &Mark) {
        self.retain(|record| record.write >= mark.next || mark.in_flight.contains(&record.write));
    }

    fn retain(&mut self, wanted: impl Fn(&Record) -> bool) {
        self.records.retain(|_, record| wanted(record));
        self.bytes = self.records.values().map(Record::bytes).sum();
    }

    /// All that is recorded, in order of offsets.
    pub(super) fn repeats(&self) -> Vec<Repeat> {
        let repeat = |(offset, record): (&u64, &Record)| match &record.content {
            Content::Bytes(all, start) => {
                Repeat::Bytes(*offset, all[*start..*start + to_usize(record.len)].to_vec())
            }
            Content::Zeros => Repeat::Zeros(*offset..*offset + record.len),
        };
        self.records.iter().map(repeat).collect()
    }

    /// Removes what is recorded of a range.
    fn remove(&mut self, range: &Range<u64>) {
        let before = self.records.range(..range.start).next_back();
        let first = before.filter(|(at, record)| **at + record.len > range.start);
        let within = self.records.range(range.clone()).map(|(at, _)| *at);
        let overlapped: Vec<u64> = first.map(|(at, _)| *at).into_iter().chain(within).collect();
        for at in overlapped {
            let Some(record) = self.records.remove(&at) else { continue };
            self.bytes -= record.bytes();
            let end = at + record.len;
            if at < range.start {
                self.insert(at, record.part(0, range.start - at));
            }
            if end > range.end {
                self.insert(range.end, record.part(range.end - at, end - range.end));
            }
        }
    }

    fn insert(&mut self, offset: u64, record: Record) {
        self.bytes += record.bytes();
        self.records.insert(offset, record);
    }
}

impl Record {
    fn bytes(&self) -> usize {
        match self.content {
            Content::Bytes(..) => to_usize(self.len),
            Content::Zeros => 0,
        }
    }

    fn part(&self, start: u64, len: u64) -> Self {
        let content = match &self.content {
            Content::Bytes(all, from) => Content::Bytes(Arc::clone(all), from + to_usize(start)),
            Content::Zeros => Content::Zeros,
        };
        Self { len, content, write: self.write }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_flush_covers_what_ended_before_it_began() {
        let mut writes = Unflushed::default();
        let first = writes.begin_write(0, b"aaaa");
        let second = writes.begin_write(8, b"bbbb");
        writes.end(first);
        let mark = writes.mark();
        writes.end(second);
        let third = writes.begin_write(2, b"cc");
        writes.end(third);
        writes.flushed(&mark);
        let left = [Repeat::Bytes(2, b"cc".to_vec()), Repeat::Bytes(8, b"bbbb".to_vec())];
        assert_eq!(writes.repeats(), left);
        assert_eq!(writes.bytes(), 6);
        writes.flushed(&writes.mark());
        assert_eq!((writes.repeats(), writes.bytes()), (vec![], 0));
    }

    const SIZE: usize = 64;

    proptest! {
        /// Repeating the records on the bytes of the last flush gives the present bytes.
        #[test]
        fn records_repeat_all_writes(
            steps in prop::collection::vec((0..SIZE, 1..SIZE, 0..4u8), 1..40),
        ) {
            let mut writes = Unflushed::default();
            let (mut now, mut stable) = ([0u8; SIZE], [0u8; SIZE]);
            for (n, (start, len, kind)) in (1u8..).zip(steps) {
                let end = (start + len).min(SIZE);
                let range = to_u64(start)..to_u64(end);
                let write = match kind {
                    0 => writes.begin_zeros(range),
                    1 if n % 8 == 0 => {
                        let mark = writes.mark();
                        writes.flushed(&mark);
                        stable = now;
                        continue;
                    }
                    _ => writes.begin_write(range.start, &vec![n; end - start]),
                };
                now[start..end].fill(if kind == 0 { 0 } else { n });
                writes.end(write);
            }
            for repeat in writes.repeats() {
                match repeat {
                    Repeat::Bytes(at, bytes) => {
                        stable[to_usize(at)..to_usize(at) + bytes.len()].copy_from_slice(&bytes);
                    }
                    Repeat::Zeros(range) => {
                        stable[to_usize(range.start)..to_usize(range.end)].fill(0);
                    }
                }
            }
            prop_assert_eq!(stable, now);
        }
    }
}
