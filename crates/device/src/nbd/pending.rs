//! Written bytes that have not been sent yet.
//!
//! Writes beside or over each other become one extent, so that one request replaces many. Extents
//! never overlap. Each has the number of the flush period in which its oldest bytes were written;
//! bytes that replace others inherit theirs, so a flush that must send the old bytes sends the new
//! ones.

use nextent_num::{to_u64, to_usize};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::ops::Range;

/// Adjacent bytes.
#[derive(Debug)]
struct Extent {
    data: Vec<u8>,
    /// The flush period of the oldest bytes.
    period: u64,
}

/// The extents, by offset.
#[derive(Debug, Default)]
pub(super) struct Pending {
    extents: BTreeMap<u64, Extent>,
    bytes: usize,
}

fn end_of(at: u64, extent: &Extent) -> u64 {
    at + to_u64(extent.data.len())
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Replaces the bytes of a range by `parts`, one after another. An extent grows up to `most`
    /// bytes. The offset of the extent that has the last byte.
    pub(super) fn write(
        &mut self,
        range: &Range<u64>,
        parts: &[IoSlice<'_>],
        period: u64,
        most: usize,
    ) -> u64 {
        let before = self.extents.range_mut(..=range.start).next_back();
        if let Some((at, extent)) = before
            && end_of(*at, extent) >= range.end
        {
            let mut to = &mut extent.data[to_usize(range.start - at)..];
            for part in parts {
                let (front, rest) = to.split_at_mut(part.len());
                front.copy_from_slice(part);
                to = rest;
            }
            return *at;
        }
        let period = self.cut(range).map_or(period, |oldest| oldest.min(period));
        let len = to_usize(range.end - range.start);
        self.bytes += len;
        let before = self.extents.range_mut(..range.start).next_back();
        if let Some((at, extent)) = before
            && end_of(*at, extent) == range.start
            && extent.data.len() + len <= most
        {
            parts.iter().for_each(|part| extent.data.extend_from_slice(part));
            extent.period = extent.period.min(period);
            return *at;
        }
        let mut data = Vec::with_capacity(len);
        parts.iter().for_each(|part| data.extend_from_slice(part));
        self.extents.insert(range.start, Extent { data, period });
        range.start
    }

    /// Removes the bytes of a range. The period of the oldest, if there are any.
    pub(super) fn cut(&mut self, range: &Range<u64>) -> Option<u64> {
        let mut oldest = None;
        while let Some(at) = self.first_in(range) {
            let Some(mut extent) = self.extents.remove(&at) else { break };
            self.bytes -= extent.data.len();
            oldest = Some(oldest.map_or(extent.period, |oldest: u64| oldest.min(extent.period)));
            let end = end_of(at, &extent);
            if end > range.end {
                let data = extent.data.split_off(to_usize(range.end - at));
                self.insert(range.end, Extent { data, period: extent.period });
            }
            if at < range.start {
                extent.data.truncate(to_usize(range.start - at));
                self.insert(at, extent);
            }
        }
        oldest
    }

    fn insert(&mut self, at: u64, extent: Extent) {
        self.bytes += extent.data.len();
        self.extents.insert(at, extent);
    }

    /// The offset of the first extent that has bytes of a range.
    pub(super) fn first_in(&self, range: &Range<u64>) -> Option<u64> {
        let before = self.extents.range(..range.start).next_back();
        let over = before.filter(|(at, extent)| end_of(**at, extent) > range.start);
        let first = over.or_else(|| self.extents.range(range.clone()).next());
        first.filter(|_| range.start < range.end).map(|(at, _)| *at)
    }

    /// Fills `buf` from `offset`, if one extent has all of it.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> bool {
        let Some((at, extent)) = self.extents.range(..=offset).next_back() else { return false };
        let start = to_usize(offset - at);
        let Some(bytes) = extent.data.get(start..start + buf.len()) else { return false };
        buf.copy_from_slice(bytes);
        true
    }

    /// The offset of the first extent at or after `from`, or else of the first one, with bytes of
    /// the `period` or an earlier one.
    pub(super) fn next(&self, from: u64, period: u64) -> Option<u64> {
        let mut both = self.extents.range(from..).chain(self.extents.range(..from));
        both.find(|(_, extent)| extent.period <= period).map(|(at, _)| *at)
    }

    /// The range of the extent at `at` and of those right after it, of at most `most` bytes if they
    /// are more than one.
    pub(super) fn run(&self, at: u64, most: usize) -> Range<u64> {
        let mut end = at;
        for (next, extent) in self.extents.range(at..) {
            let longer = end_of(*next, extent);
            if *next != end || (end > at && longer - at > to_u64(most)) {
                break;
            }
            end = longer;
        }
        at..end
    }

    /// Removes a run of extents. Their bytes.
    pub(super) fn take(&mut self, run: &Range<u64>) -> Vec<u8> {
        let mut all = Vec::new();
        let mut at = run.start;
        while at < run.end {
            let Some(extent) = self.extents.remove(&at) else { break };
            self.bytes -= extent.data.len();
            at = end_of(at, &extent);
            if all.is_empty() {
                all = extent.data;
            } else {
                all.extend_from_slice(&extent.data);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn write(pending: &mut Pending, at: u64, bytes: &[u8], period: u64) {
        let range = at..at + to_u64(bytes.len());
        pending.write(&range, &[IoSlice::new(bytes)], period, 8);
    }

    #[test]
    fn adjacent_writes_become_one_request() {
        let mut pending = Pending::default();
        write(&mut pending, 4, b"bb", 0);
        write(&mut pending, 0, b"aaaa", 0);
        write(&mut pending, 6, b"cc", 0);
        write(&mut pending, 12, b"d", 0);
        assert_eq!((pending.bytes(), pending.run(0, 8)), (9, 0..8));
        assert_eq!(pending.run(0, 5), 0..4);
        assert_eq!(pending.take(&(0..8)), b"aaaabbcc");
        assert_eq!((pending.next(13, 0), pending.next(0, 0)), (Some(12), Some(12)));
    }

    #[test]
    fn new_bytes_are_as_old_as_those_that_they_replace() {
        let mut pending = Pending::default();
        write(&mut pending, 4, b"old", 1);
        write(&mut pending, 2, b"newer", 2);
        assert_eq!((pending.next(0, 0), pending.next(0, 1)), (None, Some(2)));
        assert_eq!(pending.cut(&(0..9)), Some(1));
        assert!(pending.is_empty());
    }

    const SIZE: usize = 64;

    proptest! {
        /// The extents have the newest bytes of each offset, once.
        #[test]
        fn extents_have_the_newest_bytes(
            steps in prop::collection::vec((0..SIZE, 1..SIZE, 0..5u8), 1..40),
        ) {
            let mut pending = Pending::default();
            let mut model: [Option<u8>; SIZE] = [None; SIZE];
            for (n, (start, len, kind)) in (1u8..).zip(steps) {
                let end = (start + len).min(SIZE);
                let range = to_u64(start)..to_u64(end);
                match kind {
                    0 => {
                        pending.cut(&range);
                        model[start..end].fill(None);
                    }
                    1 => if let Some(at) = pending.next(range.start, 0) {
                        let run = pending.run(at, 16);
                        let taken = pending.take(&run);
                        let part = &mut model[to_usize(run.start)..to_usize(run.end)];
                        prop_assert!(part.iter().zip(&taken).all(|(a, b)| *a == Some(*b)));
                        part.fill(None);
                    },
                    _ => {
                        write(&mut pending, range.start, &vec![n; end - start], 0);
                        model[start..end].fill(Some(n));
                    }
                }
                let count = model.iter().flatten().count();
                prop_assert_eq!(pending.bytes(), count);
                for (at, byte) in model.iter().enumerate() {
                    let mut read = [0];
                    let is_there = pending.read(to_u64(at), &mut read);
                    prop_assert_eq!(is_there.then_some(read[0]), *byte);
                }
            }
        }
    }
}
