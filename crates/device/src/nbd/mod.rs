//! A network block device: an export of an NBD server.
//!
//! | module | what |
//! |---|---|
//! | `url` | addresses of exports |
//! | `wire` | numbers and headers of the protocol |
//! | `stream` | sockets, with TLS or without |
//! | `tls` | the state machine of TLS for a sender and a receiver |
//! | `certificates` | the files of certificates |
//! | `negotiate` | the handshake |
//! | `channel` | one connection with requests of many threads in flight |
//! | `connections` | all connections of a device; they are made again when they are lost |
//! | `unflushed` | the writes that new connections repeat |
//! | `ahead` | what is read ahead of a reader |
//! | `behind` | writes that return before the server has performed them |
//! | `pending` | their bytes, before they are sent |
//! | `writes` | the writes of the device |
//! | `queue` | asynchronous transfers |
//! | `server` | the other side: offers a device to clients |
//! | `server_requests` | a server's requests of one client |
//!
//! The device has no thread of its own: the threads that wait for replies read them.
//!
//! A server's block size may be larger than a sector. A write of a part of a block then reads the
//! block and writes all of it. It excludes other writes, with the lock `[partial]` (rank 876).

mod ahead;
#[cfg(all(test, feature = "model-shuttle"))]
mod ahead_models;
mod behind;
#[cfg(all(test, feature = "model-shuttle"))]
mod behind_models;
mod certificates;
mod channel;
#[cfg(all(test, feature = "model-shuttle"))]
mod channel_models;
mod connections;
mod negotiate;
mod options;
mod pending;
mod queue;
mod server;
mod server_requests;
mod stream;
mod tls;
mod unflushed;
mod url;
mod wire;
mod writes;

pub use options::NbdOptions;
pub use server::NbdServer;
pub use stream::NbdSocket;
pub use url::NbdAddress;

use crate::queue::DeviceQueue;
use crate::{BlockDevice, range};
use behind::Behind;
use connections::{Connections, Sent};
use negotiate::violation;
use nextent_num::{must_fit, to_u64, to_usize};
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{LockClass, RwLock};
use queue::NbdQueue;
use std::io::{self, IoSlice};
use std::ops::Range;
use wire::{Command, Request, transmission};

static PARTIAL: LockClass = LockClass::new("device.nbd-partial", 876);

/// The longest request without data, in bytes.
const LONGEST_RANGE: u64 = 1 << 30;
/// Bytes of a superblock, and of the block of multiple mount protection. Nodes poll them, so a read
/// of so many is never served by what was read ahead.
const POLLED: usize = 1024;
/// Bytes of unflushed writes after which the device flushes by itself.
const MOST_UNFLUSHED: usize = 64 << 20;

/// An export of an NBD server.
///
/// A write returns before the server has performed it, unless [`NbdOptions::write_behind`] is off.
/// A flush reports the failure of such a write, and makes writes stable as the server's flush
/// does, over all connections. Another client that writes to the export at the same time is not
/// noticed.
///
/// # Examples
///
/// ```no_run
/// use nextent_device::{BlockDevice, NbdAddress, NbdDevice, NbdOptions};
///
/// let address = NbdAddress::parse("nbd+unix:///?socket=/run/nbd.sock").expect("an address");
/// let device = NbdDevice::open(&address, &NbdOptions::new())?;
/// let mut sector = [0; 512];
/// device.read_at(0, &mut sector)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct NbdDevice {
    connections: Connections,
    /// Writes are refused. Relaxed: nothing else depends on it.
    read_only: AtomicBool,
    /// Whether there was a write since writes were allowed. The first one may claim the volume, so
    /// nothing that was read ahead before it is used after it. Relaxed: a volume is claimed by one
    /// thread.
    has_written: AtomicBool,
    /// Writes are stable when they end, because the server cannot flush.
    stable_writes: bool,
    /// Writes return before the server has performed them.
    defers: bool,
    behind: Behind<Sent>,
    /// [partial] Held shared by writes of whole blocks, exclusively by writes of parts.
    partial: RwLock<()>,
}

impl NbdDevice {
    /// Connects to the server and opens the export.
    ///
    /// # Errors
    /// The server does not answer or refuses, the export is unknown, or the server can make no
    /// write stable: it offers neither `FLUSH` nor `FUA`, and `options` want to write.
    pub fn open(address: &NbdAddress, options: &NbdOptions) -> io::Result<Self> {
        let connections = Connections::open(address, options)?;
        let stable_writes = !connections.export.has(transmission::SEND_FLUSH);
        let read_only = AtomicBool::new(true);
        let partial = RwLock::new(&PARTIAL, ());
        let defers = options.write_behind && !stable_writes;
        let behind = Behind::new(writes::limits(&connections.export));
        let has_written = AtomicBool::new(false);
        let device =
            Self { connections, read_only, has_written, stable_writes, defers, behind, partial };
        if !options.read_only && !device.connections.export.has(transmission::READ_ONLY) {
            device.allow_writes()?;
        }
        Ok(device)
    }

    /// Allows writes to an export that was opened for reading.
    ///
    /// # Errors
    /// The server does not allow writes, or can make none stable.
    pub fn allow_writes(&self) -> io::Result<()> {
        let export = &self.connections.export;
        if export.has(transmission::READ_ONLY) {
            return Err(range::read_only());
        }
        if self.stable_writes && !export.has(transmission::SEND_FUA) {
            let text = "the NBD server offers neither FLUSH nor FUA, so no write is ever stable";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        self.read_only.store(false, Ordering::Relaxed);
        self.has_written.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// The block size of the server, in bytes: each request is a multiple of it.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        self.connections.export.unit
    }

    fn unit(&self) -> u64 {
        u64::from(self.connections.export.unit)
    }

    /// Whether a range consists of whole blocks of the server.
    fn is_aligned(&self, offset: u64, len: u64) -> bool {
        offset.is_multiple_of(self.unit()) && len.is_multiple_of(self.unit())
    }

    /// The smallest range of whole blocks that contains a range.
    fn widened(&self, offset: u64, len: u64) -> Range<u64> {
        let start = offset - offset % self.unit();
        start..(offset + len).next_multiple_of(self.unit())
    }

    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        range::check(self.size(), offset, len)
    }

    fn check_write(&self, offset: u64, len: u64) -> io::Result<()> {
        if self.is_read_only() {
            return Err(range::read_only());
        }
        if !self.has_written.load(Ordering::Relaxed) {
            self.has_written.store(true, Ordering::Relaxed);
            self.connections.ahead.clear();
        }
        self.check(offset, len)
    }

    /// Divides a range into requests of at most `largest` bytes.
    fn requests(
        &self,
        command: Command,
        range: Range<u64>,
        largest: u64,
    ) -> impl Iterator<Item = Request> + use<> {
        let stable = self.stable_writes && matches!(command, Command::Write | Command::WriteZeroes);
        let mut at = range.start;
        std::iter::from_fn(move || {
            let len = (range.end - at).min(largest);
            let request = Request { stable, ..Request::new(command, at, must_fit(len)) };
            at += len;
            (len > 0).then_some(request)
        })
    }

    /// The requests that read or write a range.
    fn transfers(
        &self,
        command: Command,
        range: Range<u64>,
    ) -> impl Iterator<Item = Request> + use<> {
        self.requests(command, range, u64::from(self.connections.export.largest))
    }

    /// Reads whole blocks; `fresh` if not what was read ahead.
    fn read_blocks(&self, offset: u64, buf: &mut [u8], fresh: bool) -> io::Result<()> {
        if self.behind.read(&self.connections, offset, buf)? {
            return Ok(());
        }
        self.connections.ahead.read(&self.connections, offset, buf, fresh)
    }
}

impl BlockDevice for NbdDevice {
    fn size(&self) -> u64 {
        self.connections.export.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let len = to_u64(buf.len());
        self.check(offset, len)?;
        let fresh = buf.len() == POLLED;
        if self.is_aligned(offset, len) {
            return self.read_blocks(offset, buf, fresh);
        }
        let wide = self.widened(offset, len);
        let mut blocks = vec![0; to_usize(wide.end - wide.start)];
        self.read_blocks(wide.start, &mut blocks, fresh)?;
        let at = to_usize(offset - wide.start);
        buf.copy_from_slice(&blocks[at..at + buf.len()]);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.write_vectored_at(offset, &[IoSlice::new(buf)])
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let len = bufs.iter().map(|buf| to_u64(buf.len())).sum();
        self.check_write(offset, len)?;
        if self.is_aligned(offset, len) {
            let _whole = (self.unit() > 1).then(|| self.partial.read());
            return self.write_blocks(offset, bufs);
        }
        self.write_parts(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        self.flush_writes()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_write(offset, len)?;
        if !self.connections.export.has(transmission::SEND_TRIM) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // Parts of blocks stay.
        let start = offset.next_multiple_of(self.unit());
        let end = (offset + len) - (offset + len) % self.unit();
        let _whole = (self.unit() > 1).then(|| self.partial.read());
        self.behind.forget(&self.connections, &(start..end.max(start)))?;
        for request in self.requests(Command::Trim, start..end.max(start), LONGEST_RANGE) {
            let done = self.connections.perform(&request, &[]);
            self.end_change(&request);
            done?;
            if self.records() {
                let range = request.offset..request.offset + u64::from(request.len);
                self.connections.unflushed.lock().forget(range);
            }
        }
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_write(offset, len)?;
        let end = offset + len;
        let first = offset.next_multiple_of(self.unit()).min(end);
        let last = (end - end % self.unit()).max(first);
        if !self.connections.export.has(transmission::SEND_WRITE_ZEROES) {
            return self.write_zeros(offset..end);
        }
        self.write_zeros(offset..first)?;
        {
            let _whole = (self.unit() > 1).then(|| self.partial.read());
            self.zero_blocks(first..last)?;
        }
        self.write_zeros(last..end)
    }

    fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        let size = self.size();
        if offset >= size {
            return Ok(None);
        }
        if self.connections.export.allocation.is_none() {
            return Ok(Some(offset..size));
        }
        self.behind.settle(&self.connections, &(offset..size))?;
        let mut at = offset - offset % self.unit();
        while at < size {
            let len = LONGEST_RANGE.min(size - at);
            let request = Request::new(Command::BlockStatus, at, must_fit(len));
            let reply = self.connections.perform(&request, &[])?;
            let before = at;
            for (len, flags) in reply.ranges {
                let end = (at + u64::from(len)).min(size);
                if flags & wire::READS_ZEROS == 0 && end > offset {
                    return Ok(Some(at.max(offset)..end));
                }
                at = end;
            }
            if at == before {
                return Err(violation("a block status without a range"));
            }
        }
        Ok(None)
    }

    fn queue(&self, depth: usize) -> Box<dyn DeviceQueue + '_> {
        Box::new(NbdQueue::new(self, depth))
    }
}
