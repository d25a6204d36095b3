//! A sparse device in memory.
//!
//! It uses memory for the chunks of 16 KiB that were written, whatever its size. A clone shares
//! every chunk; the first write on either side copies the chunk. A crash test can therefore clone
//! the device at each event. Memory is allocated for up to 64 chunks at a time and freed when all
//! of them are free.
//!
//! Locking: reads and writes of an existing, unshared chunk take no lock and copy word by word. To
//! create, share or free a chunk takes the chunk's lock.

mod chunks;
mod gate;
mod slabs;

use crate::range::{self, Piece};
use crate::{BlockDevice, FileDevice, FileOptions, copy_sparse};
use chunks::{CHUNK, Chunks};
use nextent_num::{to_u64, to_usize};
use nextent_sync::Arc;
pub use slabs::MemoryStock;
use std::io;
use std::ops::Range;
use std::path::Path;

/// The largest size, 1 PiB. The table's top level grows with the size.
const MAX_SIZE: u64 = 1 << 50;

/// A device in memory that holds only the chunks that were written.
pub struct MemoryDevice {
    size: u64,
    chunks: Chunks,
}

/// The memory use of a [`MemoryDevice`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Existing chunks, whether shared with clones or not.
    pub chunks: u64,
    /// Those of them that a clone shares.
    pub shared: u64,
    /// Bytes of all existing chunks.
    pub bytes: u64,
}

impl MemoryDevice {
    /// A device of `size` bytes that reads as zeros.
    ///
    /// # Panics
    ///
    /// If `size` exceeds 1 PiB.
    pub fn new(size: u64) -> Self {
        Self::of(size, None)
    }

    /// As [`Self::new`], with memory from `stock` as far as that lasts. The memory returns to the
    /// stock.
    ///
    /// # Panics
    ///
    /// If `size` exceeds 1 PiB.
    pub fn with_stock(size: u64, stock: &MemoryStock) -> Self {
        Self::of(size, Some(stock.clone()))
    }

    fn of(size: u64, stock: Option<MemoryStock>) -> Self {
        assert!(size <= MAX_SIZE, "a memory device of {size} bytes is too large");
        Self { size, chunks: Chunks::new(size, stock) }
    }

    /// A device that holds a copy of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let device = Self::new(to_u64(bytes.len()));
        for piece in range::pieces(CHUNK, 0, to_u64(bytes.len())) {
            let share = &bytes[piece.of_buffer()];
            if share.iter().any(|&byte| byte != 0) {
                device.chunks.write(piece.unit, |chunk| {
                    chunk.write(piece.within, share);
                });
            }
        }
        device
    }

    /// All bytes, for small devices.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; to_usize(self.size)];
        self.chunks.for_each(|chunk, held| {
            let start = to_usize(chunk) * CHUNK;
            let len = CHUNK.min(bytes.len() - start);
            held.read(0, &mut bytes[start..start + len]);
        });
        bytes
    }

    /// A device with the same bytes. It shares memory until either side is written.
    ///
    /// The snapshot is of one moment, also with concurrent writers: no byte changes meanwhile. Of a
    /// write that runs then, it may have some chunks (16 KiB) only, as after a power cut.
    pub fn snapshot(&self) -> Self {
        let copy = Self::new(self.size);
        self.chunks.share_each(|chunk, held| copy.chunks.put(chunk, held));
        copy
    }

    /// The memory use.
    pub fn stats(&self) -> MemoryStats {
        let mut stats = MemoryStats::default();
        self.chunks.for_each(|_, held| {
            stats.chunks += 1;
            stats.shared += u64::from(Arc::strong_count(held) > 1);
            stats.bytes += to_u64(CHUNK);
        });
        stats
    }

    /// Writes the device to a new sparse file, which replaces the file at `path`.
    ///
    /// # Errors
    ///
    /// Any error of creating or writing the file.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        // A new file, because a process that another thread is just starting may hold a copy of the
        // lock on the old one. Devices and links are never removed.
        if std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file()) {
            std::fs::remove_file(path)?;
        }
        let file = std::fs::File::create(path)?;
        file.set_len(self.size)?;
        drop(file);
        let file = FileDevice::open(path, &FileOptions::new()).map_err(io::Error::other)?;
        copy_sparse(self, &file)
    }

    /// Reads a file or block device into memory. Holes stay holes.
    ///
    /// # Errors
    ///
    /// Any error of opening or reading it.
    pub fn load(path: &Path) -> io::Result<Self> {
        let options = FileOptions::new().read_only(true).unlocked(true);
        let file = FileDevice::open(path, &options).map_err(io::Error::other)?;
        let device = Self::new(file.size());
        copy_sparse(&file, &device)?;
        Ok(device)
    }

    fn pieces(&self, offset: u64, len: u64) -> io::Result<impl Iterator<Item = Piece> + use<>> {
        range::check(self.size, offset, len)?;
        Ok(range::pieces(CHUNK, offset, len))
    }
}

impl Clone for MemoryDevice {
    fn clone(&self) -> Self {
        self.snapshot()
    }
}

impl std::fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryDevice({} bytes)", self.size)
    }
}

impl BlockDevice for MemoryDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        for piece in self.pieces(offset, to_u64(buf.len()))? {
            let part = &mut buf[piece.of_buffer()];
            self.chunks.read(piece.unit, |chunk| match chunk {
                Some(words) => words.read(piece.within, part),
                None => part.fill(0),
            });
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        for piece in self.pieces(offset, to_u64(buf.len()))? {
            self.chunks.write(piece.unit, |chunk| {
                chunk.write(piece.within, &buf[piece.of_buffer()]);
            });
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.write_zeroes(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        range::check(self.size, offset, len)?;
        let end = offset + len;
        let (mut at, mut closed) = (offset, None);
        while at < end {
            // Skips absent chunks, so that clearing a large range is fast.
            let Some(chunk) =
                self.chunks.next_held(at / to_u64(CHUNK), end.div_ceil(to_u64(CHUNK)))
            else {
                break;
            };
            at = at.max(chunk * to_u64(CHUNK));
            let within = to_usize(at % to_u64(CHUNK));
            let len = to_usize(to_u64(CHUNK - within).min(end - at));
            if len == CHUNK {
                self.chunks.clear(chunk, closed.get_or_insert_with(|| self.chunks.close()));
            } else {
                // A write waits for the gate.
                closed = None;
                self.chunks.write_present(chunk, |words| words.clear(within..within + len));
            }
            at += to_u64(len);
        }
        Ok(())
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        let end = self.size.div_ceil(to_u64(CHUNK));
        let Some(first) = self.chunks.next_held(offset / to_u64(CHUNK), end) else {
            return Ok(None);
        };
        let mut last = first;
        while last + 1 < end && self.chunks.next_held(last + 1, last + 2).is_some() {
            last += 1;
        }
        let start = offset.max(first * to_u64(CHUNK));
        let stop = self.size.min((last + 1) * to_u64(CHUNK));
        Ok((start < stop).then_some(start..stop))
    }
}
