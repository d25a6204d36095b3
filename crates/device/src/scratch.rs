//! An overlay whose written data is in a file.

use crate::{BlockDevice, range};
use nextent_num::{to_u64, to_usize};
use nextent_sync::{LockClass, RwLock};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes of a page, the unit of written data.
const PAGE: usize = 4096;
/// Pages whose bits are one word.
const BITS: u64 = 64;

static PAGES: LockClass = LockClass::new("device.scratch", 861);

/// Returns written data, and for all other ranges the data of the base device.
///
/// Like [`Overlay`](crate::Overlay), but a page lies in a scratch file at the offset that it has on
/// the device; memory holds one bit a page. The file should be sparse and have no name. The base
/// device is never written and must not change. A flush succeeds but guarantees nothing beyond the
/// process.
pub struct ScratchOverlay<D> {
    base: D,
    scratch: File,
    /// Written pages: a bit each, by words. Held for reading while pages are read, and for writing
    /// while they are written.
    written: RwLock<BTreeMap<u64, u64>>,
}

impl<D: BlockDevice> ScratchOverlay<D> {
    /// An overlay of `base` without written data, which it will keep in `scratch`, an empty file.
    pub fn new(base: D, scratch: File) -> Self {
        Self { base, scratch, written: RwLock::new(&PAGES, BTreeMap::new()) }
    }

    /// The base device.
    pub fn base(&self) -> &D {
        &self.base
    }

    /// The first written range at or after `offset`: whole pages, but for one that `offset` or the
    /// end of the device divides.
    pub fn next_written(&self, offset: u64) -> Option<Range<u64>> {
        if offset >= self.size() {
            // The last page may reach behind the end.
            return None;
        }
        let written = self.written.read();
        let first = offset / to_u64(PAGE);
        let mut pages = written.range(first / BITS..).flat_map(|(word, bits)| {
            let bits = *bits;
            (0..BITS).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * BITS + bit)
        });
        let start = pages.find(|page| *page >= first)?;
        let last = pages.zip(start + 1..).take_while(|(page, next)| page == next).last();
        let end = last.map_or(start, |(page, _)| page) + 1;
        Some((start * to_u64(PAGE)).max(offset)..(end * to_u64(PAGE)).min(self.size()))
    }

    /// The bytes of a page in the device.
    fn bytes_of(&self, page: u64) -> (u64, usize) {
        let at = page * to_u64(PAGE);
        (at, to_usize(to_u64(PAGE).min(self.base.size() - at)))
    }

    /// Changes a part of a page with `change`. The caller holds the lock of `written`.
    fn change(
        &self,
        written: &mut BTreeMap<u64, u64>,
        piece: range::Piece,
        change: impl FnOnce(&mut [u8]),
    ) -> io::Result<()> {
        let (at, len) = self.bytes_of(piece.unit);
        let mut bytes = [0; PAGE];
        if piece.len < len {
            match is_written(written, piece.unit) {
                true => self.scratch.read_exact_at(&mut bytes[..len], at)?,
                false => self.base.read_at(at, &mut bytes[..len])?,
            }
        }
        change(&mut bytes[piece.of_unit()]);
        self.scratch.write_all_at(&bytes[..len], at)?;
        *written.entry(piece.unit / BITS).or_default() |= 1 << (piece.unit % BITS);
        Ok(())
    }
}

fn is_written(written: &BTreeMap<u64, u64>, page: u64) -> bool {
    written.get(&(page / BITS)).is_some_and(|bits| bits >> (page % BITS) & 1 == 1)
}

impl<D: BlockDevice> BlockDevice for ScratchOverlay<D> {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        range::check(self.size(), offset, to_u64(buf.len()))?;
        self.base.read_at(offset, buf)?;
        let written = self.written.read();
        for piece in range::pieces(PAGE, offset, to_u64(buf.len())) {
            if is_written(&written, piece.unit) {
                let at = offset + piece.done;
                self.scratch.read_exact_at(&mut buf[piece.of_buffer()], at)?;
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        range::check(self.size(), offset, to_u64(buf.len()))?;
        let mut written = self.written.write();
        for piece in range::pieces(PAGE, offset, to_u64(buf.len())) {
            let bytes = &buf[piece.of_buffer()];
            self.change(&mut written, piece, |part| part.copy_from_slice(bytes))?;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        // A discarded range may read as anything, so it may stay as it is.
        range::check(self.size(), offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        range::check(self.size(), offset, len)?;
        let mut written = self.written.write();
        for piece in range::pieces(PAGE, offset, len) {
            self.change(&mut written, piece, |part| part.fill(0))?;
        }
        Ok(())
    }

    fn is_read_only(&self) -> bool {
        false
    }
}
