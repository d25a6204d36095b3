//! Iterates over and copies the ranges that may hold data.

use crate::BlockDevice;
use nextent_num::{to_u64, to_usize};
use std::io;
use std::ops::Range;

/// An iterator over the ranges of a device that may hold anything but zeros.
pub struct SparseRanges<'a, D: ?Sized> {
    device: &'a D,
    at: u64,
}

impl<'a, D: BlockDevice + ?Sized> SparseRanges<'a, D> {
    /// All data ranges of `device`, in rising order.
    pub fn new(device: &'a D) -> Self {
        Self { device, at: 0 }
    }
}

impl<D: BlockDevice + ?Sized> Iterator for SparseRanges<'_, D> {
    type Item = io::Result<Range<u64>>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.device.next_data(self.at) {
            Ok(Some(range)) => {
                self.at = range.end;
                Some(Ok(range))
            }
            Ok(None) => None,
            Err(error) => {
                self.at = u64::MAX;
                Some(Err(error))
            }
        }
    }
}

/// Copies the data ranges of `from` to the same offsets of `to`. Other ranges of `to` stay
/// unchanged.
///
/// # Errors
///
/// Any error of either device. `to` may then hold part of the copy.
pub fn copy_sparse<A, B>(from: &A, to: &B) -> io::Result<()>
where
    A: BlockDevice + ?Sized,
    B: BlockDevice + ?Sized,
{
    const STEP: u64 = 1 << 20;
    let mut buf = Vec::new();
    for range in SparseRanges::new(from) {
        let range = range?;
        let mut at = range.start;
        while at < range.end {
            let len = to_usize(STEP.min(range.end - at));
            buf.resize(len, 0);
            from.read_at(at, &mut buf)?;
            if buf.iter().any(|&byte| byte != 0) {
                to.write_at(at, &buf)?;
            }
            at += to_u64(len);
        }
    }
    Ok(())
}
