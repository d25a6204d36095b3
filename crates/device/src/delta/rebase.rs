//! Another base for a delta: the overlay reads the same bytes afterwards.
//!
//! Units that differ between the two bases are copied from the old base into the delta and flushed.
//! Then the header names the new base. A crash before that leaves an overlay of the old base that
//! reads the same.

use super::format::{State, UNIT};
use super::io::read_or_zeros;
use super::{DeltaDevice, DeltaError, Header, chosen, identity_of, read_header};
use crate::{BlockDevice, range};
use nextent_num::to_usize;
use std::io;

/// The most bytes of one read; a multiple of a unit.
const STEP: u64 = 1 << 20;

impl<B: BlockDevice, S: BlockDevice> DeltaDevice<B, S> {
    /// Makes `base` the base, which may have another size. Returns the bytes copied into the delta.
    ///
    /// # Errors
    ///
    /// An error of a device, or the delta is read only or is being committed.
    pub fn rebase(
        self,
        base: &(impl BlockDevice + ?Sized),
        samples: Vec<u64>,
    ) -> Result<u64, DeltaError> {
        if self.is_committing() {
            return Err(DeltaError::Committing);
        }
        if self.is_read_only() {
            return Err(range::read_only().into());
        }
        self.bitmap.load_all(&self.store)?;
        let (mut at, size, mut copied) = (0, self.size(), 0);
        while at < size {
            let (present, end) = self.run(at, size)?;
            at = match present {
                true => end,
                false => {
                    let (to, bytes) = self.copy_differences(base, at, end)?;
                    copied += bytes;
                    to
                }
            };
        }
        self.flush()?;
        write_base(&self.store, self.header.clone(), base, samples)?;
        Ok(copied)
    }

    /// Copies what differs in a range without units of the delta, at most [`STEP`] bytes of it.
    /// Returns up to where that was, and the bytes copied.
    fn copy_differences(
        &self,
        other: &(impl BlockDevice + ?Sized),
        at: u64,
        end: u64,
    ) -> io::Result<(u64, u64)> {
        let of_base = self.base.next_data(at)?.map_or(end, |data| data.start);
        let of_other = other.next_data(at)?.map_or(end, |data| data.start);
        let data = of_base.min(of_other).min(end) / UNIT * UNIT;
        if data > at {
            return Ok((data, 0));
        }
        let end = end.min(at + STEP);
        let mut wanted = vec![0; to_usize(end - at)];
        let mut found = wanted.clone();
        self.read_base(at, &mut wanted)?;
        read_or_zeros(other, at, &mut found)?;
        let mut copied = 0;
        for piece in range::pieces(to_usize(UNIT), at, end - at) {
            let unit = &wanted[piece.of_buffer()];
            if unit != &found[piece.of_buffer()] {
                self.write_at(at + piece.done, unit)?;
                copied += UNIT;
            }
        }
        Ok((end, copied))
    }
}

/// Makes `base`, which is known to hold the same bytes, the base of the delta in `store`.
///
/// # Errors
///
/// [`DeltaError`]: it is no delta, is damaged or is being committed, or `base` has another size.
pub fn replace_base(
    store: &(impl BlockDevice + ?Sized),
    base: &(impl BlockDevice + ?Sized),
    samples: Vec<u64>,
) -> Result<(), DeltaError> {
    let header = read_header(store)?;
    if header.state == State::Committing {
        return Err(DeltaError::Committing);
    }
    if header.base_size != base.size() {
        let (recorded, found) = (header.base_size, base.size());
        return Err(DeltaError::BaseSize { recorded, found });
    }
    write_base(store, header, base, samples)
}

fn write_base(
    store: &(impl BlockDevice + ?Sized),
    mut header: Header,
    base: &(impl BlockDevice + ?Sized),
    samples: Vec<u64>,
) -> Result<(), DeltaError> {
    header.base_size = base.size();
    header.samples = chosen(samples, base.size());
    header.identity = identity_of(base, &header.samples)?;
    store.write_at(0, &header.encode())?;
    Ok(store.flush()?)
}
