//! A device in a regular file or block device.
//!
//! - Reads and writes are positioned, so threads share the descriptor without a lock.
//! - A flush is `fdatasync`. After a failed flush every later one fails too: the kernel reports a
//!   lost write only once, so a later `Ok` would be wrong.
//! - With `O_DIRECT`, unaligned transfers use an aligned buffer. A write that covers its first or
//!   last unit in part reads that unit, changes it and writes it back under an exclusive lock.
//! - Queues use io_uring if possible, else threads.

mod device_number;
mod direct;
mod exclusive;
mod mounted;
mod options;
mod pool;
#[cfg(target_os = "linux")]
mod ring;
mod sys;
mod upgrade;

pub use exclusive::{User, Users};
pub use mounted::{MountedVolume, drop_device_cache};
pub use options::{FileOptions, OpenError};

#[cfg(target_os = "linux")]
use crate::SECTOR;
use crate::queue::DeviceQueue;
#[cfg(target_os = "linux")]
use crate::queue::{Direction, Transfer, outside};
use crate::{BlockDevice, range, write_zero_bytes};
use direct::Direct;
use nextent_num::to_u64;
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{Arc, LockClass, Mutex};
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Bytes from which on zeros are written by unmapping the range.
const UNMAP_AT: u64 = 32 * 1024;

/// [device.claim]
static CLAIM: LockClass = LockClass::new("device.claim", 875);

/// A device in a file, from an offset.
#[derive(Debug)]
pub struct FileDevice {
    opened: Arc<Opened>,
}

/// The state that a device shares with its queues.
#[derive(Debug)]
struct Opened {
    file: File,
    /// The path by which it was opened, for messages.
    path: PathBuf,
    /// The locks and claims against other users of the same bytes.
    claim: Mutex<exclusive::Claim>,
    /// Whether it takes no lock for reading.
    unlocked: bool,
    /// What the lock is for.
    locked: LockedBytes,
    offset: u64,
    size: u64,
    /// Stored under `claim`, once.
    read_only: AtomicBool,
    /// The lock is lost; see [`upgrade`].
    lost: AtomicBool,
    block_device: bool,
    direct: Option<Direct>,
    /// Whether queues always use threads.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))] // only io_uring needs it
    by_threads: bool,
    /// Set once, by the first failed flush.
    flush_failed: AtomicBool,
}

/// The bytes of the file that the lock is for.
#[derive(Debug, Default)]
struct LockedBytes {
    bytes: Range<u64>,
    /// Whether other bytes of the file may have other users.
    is_part: bool,
    /// The part's name.
    part: Option<String>,
}

impl LockedBytes {
    /// A request for the lock.
    fn wanted<'a>(&'a self, path: &'a Path, writes: bool, unlocked: bool) -> exclusive::Wanted<'a> {
        let (bytes, is_part, part) = (self.bytes.clone(), self.is_part, self.part.as_deref());
        exclusive::Wanted { path, writes, unlocked, record_locks: false, bytes, is_part, part }
    }
}

impl FileDevice {
    /// Opens or creates `path`.
    ///
    /// # Errors
    ///
    /// [`OpenError`], which names the path and the conflict.
    ///
    /// # Examples
    ///
    /// ```
    /// use nextent_device::{BlockDevice, FileDevice, FileOptions};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("disk.img");
    /// let device = FileDevice::open(&path, &FileOptions::new().create(true).size(1 << 20))?;
    /// device.write_at(512, b"text")?;
    /// device.flush()?;
    /// assert!(FileDevice::open(&path, &FileOptions::new()).is_err(), "locked");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(path: impl AsRef<Path>, options: &FileOptions) -> Result<Self, OpenError> {
        options::open(path.as_ref(), options)
    }

    /// Uses a file that is open for reading and writing, with its current length. The file is not
    /// locked.
    ///
    /// # Errors
    ///
    /// The system's error if the file cannot be examined.
    pub fn from_open(file: File) -> io::Result<Self> {
        let size = sys::length(&file)?;
        let block_device = sys::is_block_device(&file)?;
        let direct = sys::is_direct(&file)?;
        let direct = direct.then(|| Direct::new(sys::direct_unit(&file, block_device)));
        let flush_failed = AtomicBool::new(false);
        let opened = Opened {
            file,
            path: PathBuf::new(),
            claim: Mutex::new(&CLAIM, exclusive::Claim::default()),
            unlocked: true,
            locked: LockedBytes::default(),
            offset: 0,
            size,
            read_only: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            block_device,
            direct,
            by_threads: false,
            flush_failed,
        };
        Ok(Self { opened: Arc::new(opened) })
    }

    /// A queue without a reference to the device. It keeps the file open.
    #[must_use]
    pub fn own_queue(&self, depth: usize) -> Box<dyn DeviceQueue> {
        #[cfg(target_os = "linux")]
        if self.opened.may_use_ring()
            && let Ok(ring) = ring::Ring::new(Arc::clone(&self.opened), depth)
        {
            return Box::new(ring);
        }
        Box::new(pool::Pool::new(Arc::clone(&self.opened), depth))
    }

    /// Changes the size and the length of the file (regular files only). It needs the only
    /// reference, because queues rely on a fixed size.
    ///
    /// # Errors
    ///
    /// If it is a block device or a named part, has a queue, is read only, or cannot be resized.
    pub fn set_len(&mut self, size: u64) -> io::Result<()> {
        let opened = Arc::get_mut(&mut self.opened);
        let opened = opened.ok_or_else(|| io::Error::other("a queue uses the device"))?;
        if opened.is_read_only() {
            return Err(range::read_only());
        }
        if opened.block_device {
            return Err(io::Error::other("a block device cannot be resized"));
        }
        if opened.locked.part.is_some() {
            return Err(io::Error::other("a part of a file cannot be resized"));
        }
        opened.file.set_len(opened.offset + size)?;
        opened.size = size;
        Ok(())
    }

    /// Releases the exclusive claim of a block device and returns it, so that the kernel can mount
    /// the device for this process' server. The lock stays. It needs the only reference.
    pub fn take_claim(&mut self) -> Option<File> {
        Arc::get_mut(&mut self.opened)?.claim.get_mut().own.take()
    }

    /// Claims a block device again. `None` if this process may not open it.
    ///
    /// # Errors
    ///
    /// [`OpenError::Busy`].
    pub fn claim(path: impl AsRef<Path>) -> Result<Option<File>, OpenError> {
        exclusive::claim_device(path.as_ref())
    }

    /// The block size, in bytes, of a block device's cache; `None` for a regular file.
    pub fn cache_block_size(&self) -> Option<u32> {
        self.opened.block_device.then(|| sys::cache_block_size(&self.opened.file)).flatten()
    }

    /// Bytes of a logical sector of a block device; `None` for a regular file.
    pub fn sector_size(&self) -> Option<u64> {
        self.opened.block_device.then(|| sys::sector_size(&self.opened.file)).flatten()
    }

    /// The path of the kernel's device for a partition of this block device, if the kernel has one
    /// with exactly these bytes.
    pub fn partition_device(&self, offset: u64, size: u64) -> Option<PathBuf> {
        let meta = self.opened.file.metadata().ok().filter(|_| self.opened.block_device)?;
        exclusive::partition_device(meta.rdev(), offset..offset.checked_add(size)?)
    }

    /// Whether the file is a block device.
    pub fn is_block_device(&self) -> bool {
        self.opened.block_device
    }
}

impl Opened {
    /// Whether the kernel may perform several transfers concurrently. It may not if writes can
    /// cover a unit in part: these exclude all others.
    #[cfg(target_os = "linux")]
    fn may_use_ring(&self) -> bool {
        !self.by_threads && self.direct.as_ref().is_none_or(|direct| direct.unit() <= SECTOR)
    }

    /// Whether the kernel can perform the transfer unchanged. `false` if it is empty or unaligned.
    ///
    /// # Errors
    ///
    /// A transfer beyond the device or its buffer, or a write to a read-only device.
    #[cfg(target_os = "linux")]
    fn fits_the_ring(&self, transfer: &Transfer) -> io::Result<bool> {
        if !transfer.fits() {
            return Err(outside());
        }
        let mut whole = !transfer.pieces.as_slice().is_empty();
        for piece in transfer.pieces.as_slice() {
            let len = to_u64(piece.len);
            let at = match transfer.direction {
                Direction::Read => self.place(piece.offset, len)?,
                Direction::Write => self.place_write(piece.offset, len)?,
            };
            whole &= len > 0;
            if let Some(direct) = &self.direct {
                whole &= direct.takes(at, &transfer.buffer[piece.of_buffer()]);
            }
        }
        Ok(whole)
    }

    fn place(&self, offset: u64, len: u64) -> io::Result<u64> {
        range::check(self.size, offset, len)?;
        self.check_lock()?;
        Ok(self.offset + offset)
    }

    fn place_write(&self, offset: u64, len: u64) -> io::Result<u64> {
        if self.is_read_only() {
            return Err(range::read_only());
        }
        self.place(offset, len)
    }
}

impl BlockDevice for Opened {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let at = self.place(offset, to_u64(buf.len()))?;
        let read = match &self.direct {
            Some(direct) => direct.read(&self.file, at, buf),
            None => self.file.read_exact_at(buf, at),
        };
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => range::cut_short(at, to_u64(buf.len())),
            _ => error,
        })
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let at = self.place_write(offset, to_u64(buf.len()))?;
        match &self.direct {
            Some(direct) => direct.write(&self.file, at, &[IoSlice::new(buf)]),
            None => self.file.write_all_at(buf, at),
        }
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let len = bufs.iter().map(|buf| to_u64(buf.len())).sum();
        let at = self.place_write(offset, len)?;
        match &self.direct {
            Some(direct) => direct.write(&self.file, at, bufs),
            None => sys::write_all_vectored(&self.file, at, bufs),
        }
    }

    fn flush(&self) -> io::Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        if self.flush_failed.load(Ordering::Acquire) {
            return Err(io::Error::other("an earlier flush failed; written data may be lost"));
        }
        let result = self.file.sync_data();
        if result.is_err() {
            self.flush_failed.store(true, Ordering::Release);
        }
        result
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let at = self.place_write(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        match sys::unmap(&self.file, self.block_device, at, len)? {
            true => Ok(()),
            false => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        let at = self.place_write(offset, len)?;
        if len >= UNMAP_AT && sys::zero(&self.file, self.block_device, at, len)? {
            return Ok(());
        }
        write_zero_bytes(self, offset, len)
    }

    fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        if offset >= self.size {
            return Ok(None);
        }
        if self.block_device {
            return Ok(Some(offset..self.size));
        }
        let end = self.offset + self.size;
        let Some(data) = sys::next_data(&self.file, self.offset + offset, end)? else {
            return Ok(None);
        };
        Ok(Some(data.start - self.offset..data.end - self.offset))
    }
}

impl BlockDevice for FileDevice {
    fn size(&self) -> u64 {
        self.opened.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.opened.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.opened.write_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.opened.write_vectored_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        self.opened.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.opened.discard(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        self.opened.write_zeroes(offset, len)
    }

    fn is_read_only(&self) -> bool {
        self.opened.is_read_only()
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.opened.next_data(offset)
    }

    fn queue(&self, depth: usize) -> Box<dyn DeviceQueue + '_> {
        self.own_queue(depth)
    }
}
