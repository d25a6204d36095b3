//! Block devices and what their flush promises.
//!
//! A device is a fixed number of bytes that all threads may read and write at
//! once; the floors above add every meaning. Promised here: the [`BlockDevice`]
//! contract, word for word, by each implementation. A device never retries,
//! never caches beyond what its contract allows and never changes bytes
//! outside the range that it was given.
//!
//! - [`FileDevice`]: a regular file or block device, from an offset, locked
//!   against other writers, with `O_DIRECT` when asked.
//! - [`MemoryDevice`]: sparse memory, cheap to clone (copy on write).
//! - [`RecordingDevice`]: logs what happens, so that the image after a crash at
//!   any point can be built ([`Recording`]).
//! - [`FaultDevice`]: errors, torn and lost writes, full disks and delays.
//! - [`LatencyDevice`]: answers later.
//! - [`Overlay`], [`ReadOnly`]: writes kept in memory, or refused.
//!
//! Each has queues ([`DeviceQueue`]), on which transfers are in flight.
//!
//! Locks: ranks 850 to 906, taken inside one call and never while another
//! device's lock of the same rank is held; see the statics of each module.
//! Unsafe code is confined to `file::sys`, `file::ring`, `queue::buffer` and `memory::chunks`.

#![deny(unsafe_code)]

use nextent_num::to_u64;
use std::io::{self, IoSlice};
use std::ops::Range;

mod fault;
mod file;
mod forward;
mod latency;
mod memory;
mod overlay;
pub mod queue;
mod range;
mod read_only;
mod record;
mod replay;
mod sparse;

pub use fault::{Fault, FaultDevice, OpKind, Rule};
pub use file::{FileDevice, FileOptions, OpenError, User, Users};
pub use latency::LatencyDevice;
pub use memory::{MemoryDevice, MemoryStats, MemoryStock};
pub use overlay::Overlay;
pub use queue::{Buffer, DeviceQueue};
pub use read_only::ReadOnly;
pub use record::{Event, RecordingDevice};
pub use replay::{Loss, Recording};
pub use sparse::{SparseRanges, copy_sparse};

/// The unit that a crash keeps or loses whole.
pub const SECTOR: usize = 512;

/// Random-access storage of a fixed size, usable from all threads at once.
///
/// A write that returned is seen by every later read. It is on stable storage
/// only after a `flush` that began after the write returned has itself
/// returned `Ok`. Without a flush any subset of the writes, cut at any 512-byte
/// sector, may survive a crash. Concurrent writes to overlapping ranges leave
/// either's bytes, sector by sector. `discard` and `write_zeroes` are writes in
/// this sense. Once a flush has failed nothing is known about what was written
/// since the flush before it, and a later `Ok` says nothing about those writes.
pub trait BlockDevice: Send + Sync {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Fills `buf` from `offset`. Beyond the end is an error.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes all of `buf` at `offset`. Beyond the end is an error.
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()>;

    /// Writes all of `bufs`, one after another, at `offset`.
    fn write_vectored_at(&self, mut offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        for buf in bufs {
            self.write_at(offset, buf)?;
            offset += to_u64(buf.len());
        }
        Ok(())
    }

    /// Makes every write that returned before this call stable.
    fn flush(&self) -> io::Result<()>;

    /// Says that the range is no longer needed; it may read as anything after.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Makes the range read as zeros.
    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool;

    /// The first range at or after `offset` that may hold anything but zeros;
    /// `None` if only zeros follow. A device that cannot tell says "the rest".
    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        Ok((offset < self.size()).then(|| offset..self.size()))
    }

    /// A queue on which about `depth` transfers are to be in flight. What they promise is in
    /// [`queue`]; a device that needs no time does them at once.
    fn queue(&self, depth: usize) -> Box<dyn DeviceQueue + '_> {
        Box::new(queue::AtOnce::new(self, depth))
    }
}
