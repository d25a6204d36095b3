//! Transfers that bypass the page cache. They need file offsets, lengths and memory addresses in
//! multiples of a unit.
//!
//! Locking: a write of whole units holds `[units]` shared, so these run concurrently. A write that
//! covers a unit in part holds `[units]` exclusively, because it also writes back bytes next to its
//! own.

use crate::queue::Buffer;
use nextent_num::{to_u64, to_usize};
use nextent_sync::{LockClass, RwLock};
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice};
use std::os::unix::fs::FileExt;

static UNITS: LockClass = LockClass::new("device.direct", 900);

/// Bytes of the bounce buffer at most.
const STEP: usize = 1 << 20;

/// The unit of one file, and the lock for writes of partial units.
pub(super) struct Direct {
    unit: usize,
    units: RwLock<()>,
}

impl std::fmt::Debug for Direct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Direct({})", self.unit)
    }
}

impl Direct {
    pub(super) fn new(unit: usize) -> Self {
        Self { unit, units: RwLock::new(&UNITS, ()) }
    }

    /// The unit, in bytes.
    #[cfg(target_os = "linux")]
    pub(super) fn unit(&self) -> usize {
        self.unit
    }

    /// Whether a transfer between offset `at` of the file and `memory` needs no bounce buffer.
    #[cfg(target_os = "linux")]
    pub(super) fn takes(&self, at: u64, memory: &[u8]) -> bool {
        [at, to_u64(memory.len()), to_u64(memory.as_ptr().addr())]
            .into_iter()
            .all(|n| self.aligned(n))
    }

    fn aligned(&self, number: u64) -> bool {
        number.is_multiple_of(to_u64(self.unit))
    }

    /// Start and length, in bytes, of the units that a range overlaps.
    fn cover(&self, at: u64, len: usize) -> (u64, usize) {
        let unit = to_u64(self.unit);
        let start = at / unit * unit;
        (start, to_usize((at + to_u64(len)).div_ceil(unit) * unit - start))
    }

    /// Fills `buf` from offset `at` of the file.
    pub(super) fn read(&self, file: &File, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let whole = self.aligned(at) && self.aligned(to_u64(buf.len()));
        if whole && self.aligned(to_u64(buf.as_ptr().addr())) {
            return file.read_exact_at(buf, at);
        }
        let mut at = at;
        for part in buf.chunks_mut(STEP) {
            let (start, len) = self.cover(at, part.len());
            let mut bounce = Buffer::aligned(len, self.unit);
            let head = to_usize(at - start);
            if read_up_to(file, start, &mut bounce)? < head + part.len() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            part.copy_from_slice(&bounce[head..head + part.len()]);
            at += to_u64(part.len());
        }
        Ok(())
    }

    /// Writes all of `bufs` at offset `at` of the file.
    pub(super) fn write(&self, file: &File, at: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let mut at = at;
        for buf in bufs {
            self.write_one(file, at, buf)?;
            at += to_u64(buf.len());
        }
        Ok(())
    }

    fn write_one(&self, file: &File, at: u64, buf: &[u8]) -> io::Result<()> {
        if !self.aligned(at) || !self.aligned(to_u64(buf.len())) {
            let _alone = self.units.write();
            return self.write_partial(file, at, buf);
        }
        let _shared = self.units.read();
        if self.aligned(to_u64(buf.as_ptr().addr())) {
            return file.write_all_at(buf, at);
        }
        let mut bounce = Buffer::aligned(buf.len().min(STEP), self.unit);
        let mut at = at;
        for part in buf.chunks(STEP) {
            bounce[..part.len()].copy_from_slice(part);
            file.write_all_at(&bounce[..part.len()], at)?;
            at += to_u64(part.len());
        }
        Ok(())
    }

    /// Reads the units, changes them and writes them back. The caller holds [units] exclusively.
    fn write_partial(&self, file: &File, at: u64, buf: &[u8]) -> io::Result<()> {
        let mut at = at;
        for part in buf.chunks(STEP) {
            let (start, len) = self.cover(at, part.len());
            let mut bounce = Buffer::aligned(len, self.unit);
            let held = read_up_to(file, start, &mut bounce)?;
            let head = to_usize(at - start);
            bounce[head..head + part.len()].copy_from_slice(part);
            file.write_all_at(&bounce, start)?;
            let end = start + to_u64(held.max(head + part.len()));
            if held < len && start + to_u64(len) > end {
                // The file's last unit was partial.
                file.set_len(end)?;
            }
            at += to_u64(part.len());
        }
        Ok(())
    }
}

/// Reads until the buffer is full or the file ends. Returns the number of bytes read.
fn read_up_to(file: &File, at: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], at + to_u64(done)) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // After a short read at the file's end, the offset is unaligned.
            Err(error) if done > 0 && error.kind() == ErrorKind::InvalidInput => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
