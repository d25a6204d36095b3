#![doc = include_str!("../README.md")]
//!
//! # Design
//!
//! Block devices, and what a flush guarantees.
//!
//! A device is a fixed number of bytes that all threads may read and write at the same time. Each
//! implementation fulfils the [`BlockDevice`] contract.
//!
//! | device | use |
//! |---|---|
//! | [`FileDevice`] | a regular file or block device, from an offset, locked against other writers, optionally with `O_DIRECT` |
//! | [`MemoryDevice`] | sparse memory, cheap to clone (copy on write) |
//! | [`NbdDevice`] | an export of an NBD server |
//! | [`DevicePart`] | a range of another device |
//! | [`RecordingDevice`] | logs every write and flush, so that a test can build the image after a crash at any point ([`Recording`]) |
//! | [`FaultDevice`] | errors, torn and lost writes, full disks and delays |
//! | [`LatencyDevice`] | delays every operation |
//! | [`DeltaDevice`] | keeps writes durably in a file, over a base that many of them share |
//! | [`Overlay`], [`ScratchOverlay`] | keep writes in memory, or in a scratch file, while the process lives |
//! | [`ReadOnly`] | refuses writes |
//!
//! Each device has queues ([`DeviceQueue`]) for asynchronous transfers.
//!
//! Invariants:
//!
//! - A device never retries and never changes bytes outside the given range. It caches only what
//!   the contract allows.
//! - Unsafe code is confined to `file::sys`, `file::ring`, `queue::buffer` and `memory::chunks`.
//!
//! Lock ranks: 846 to 906. A device takes its locks within one call, and never while it holds
//! another device's lock of the same rank. The static of each lock has its rank.

#![deny(unsafe_code)]

use nextent_num::to_u64;
use std::io::{self, IoSlice};
use std::ops::Range;

mod delta;
mod fault;
mod file;
mod forward;
mod latency;
mod memory;
mod nbd;
mod overlay;
mod part;
pub mod queue;
mod range;
mod read_only;
mod record;
mod replay;
mod scratch;
mod sparse;
mod zeros;

pub use delta::{DeltaDevice, DeltaError, DeltaFile, is_unused_delta, replace_base};
pub use fault::{Fault, FaultDevice, OpKind, Rule};
pub use file::{FileDevice, FileOptions, MountedVolume, OpenError, User, Users, drop_device_cache};
pub use latency::LatencyDevice;
pub use memory::{MemoryDevice, MemoryStats, MemoryStock};
pub use nbd::{NbdAddress, NbdDevice, NbdOptions, NbdServer, NbdSocket};
pub use overlay::Overlay;
pub use part::DevicePart;
pub use queue::{Buffer, DeviceQueue};
pub use read_only::ReadOnly;
pub use record::{Event, RecordingDevice};
pub use replay::{Loss, Recording};
pub use scratch::ScratchOverlay;
pub use sparse::{SparseRanges, copy_sparse};
pub use zeros::write_zero_bytes;

/// Bytes of the unit that a crash keeps or loses as a whole.
pub const SECTOR: usize = 512;

/// Random-access storage of a fixed size, usable from all threads at once.
///
/// Guarantees:
///
/// - Every later read sees a write that has returned.
/// - A write is on stable storage only after a `flush` has returned `Ok` that began after the write
///   returned. Without a flush, any subset of the writes may survive a crash, cut at any 512-byte
///   sector.
/// - Concurrent writes to overlapping ranges leave the bytes of either, sector by sector.
/// - `discard` and `write_zeroes` are writes in this sense.
/// - After a failed flush, the state of all writes since the previous flush is unknown. A later
///   `Ok` says nothing about them.
///
/// Offsets and lengths are in bytes. An access beyond the end is an error.
///
/// # Examples
///
/// ```
/// use nextent_device::{BlockDevice, MemoryDevice};
///
/// let device = MemoryDevice::new(1 << 20);
/// device.write_at(4096, b"text")?;
/// device.flush()?;
/// let mut text = [0; 4];
/// device.read_at(4096, &mut text)?;
/// assert_eq!(&text, b"text");
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait BlockDevice: Send + Sync {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Fills `buf` from `offset`.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes all of `buf` at `offset`.
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()>;

    /// Writes all of `bufs`, one after the other, at `offset`.
    fn write_vectored_at(&self, mut offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        for buf in bufs {
            self.write_at(offset, buf)?;
            offset += to_u64(buf.len());
        }
        Ok(())
    }

    /// Makes every write stable that returned before this call.
    fn flush(&self) -> io::Result<()>;

    /// Marks the range as unused. It may read as anything afterwards.
    ///
    /// # Errors
    /// [`Unsupported`](io::ErrorKind::Unsupported) if the device cannot: it keeps the bytes.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Makes the range read as zeros.
    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool;

    /// The first range at or after `offset` that may hold anything but zeros. `None` if only zeros
    /// follow. A device without this knowledge returns the rest of its bytes.
    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        Ok((offset < self.size()).then(|| offset..self.size()))
    }

    /// A queue for about `depth` transfers in flight; [`queue`] has its guarantees. The default
    /// queue performs a transfer when it is submitted.
    fn queue(&self, depth: usize) -> Box<dyn DeviceQueue + '_> {
        Box::new(queue::ImmediateQueue::new(self, depth))
    }
}
