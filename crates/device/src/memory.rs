//! A sparse device in memory.

use crate::BlockDevice;
use nextent_sync::{LockClass, RwLock};
use std::collections::HashMap;
use std::io;

const CHUNK: usize = 64 * 1024;
const SHARDS: usize = 256;

static CHUNKS: LockClass = LockClass::new("device.memory", 900);

type Shard = RwLock<HashMap<u64, Box<[u8]>>>;

/// A device in memory that holds only the 64 KiB chunks that were written.
pub struct MemoryDevice {
    size: u64,
    shards: Box<[Shard]>,
}

impl MemoryDevice {
    /// A device of `size` bytes that reads as zeros.
    pub fn new(size: u64) -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::new(&CHUNKS, HashMap::new())).collect();
        Self { size, shards }
    }

    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size => Ok(()),
            _ => {
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, "access beyond the device's end"))
            }
        }
    }

    fn shard(&self, chunk: u64) -> &Shard {
        &self.shards[chunk as usize % SHARDS]
    }
}

/// Splits a range into (chunk, offset in chunk, offset in range, length).
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % CHUNK as u64) as usize;
        let n = (CHUNK - within).min(len - done);
        let piece = (at / CHUNK as u64, within, done, n);
        done += n;
        Some(piece)
    })
}

impl BlockDevice for MemoryDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64)?;
        for (chunk, within, at, n) in pieces(offset, buf.len()) {
            match self.shard(chunk).read().get(&chunk) {
                Some(bytes) => buf[at..at + n].copy_from_slice(&bytes[within..within + n]),
                None => buf[at..at + n].fill(0),
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64)?;
        for (chunk, within, at, n) in pieces(offset, buf.len()) {
            let mut shard = self.shard(chunk).write();
            let bytes = shard.entry(chunk).or_insert_with(|| vec![0; CHUNK].into());
            bytes[within..within + n].copy_from_slice(&buf[at..at + n]);
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
        self.check(offset, len)?;
        let mut at = offset;
        let end = offset + len;
        while at < end {
            let chunk = at / CHUNK as u64;
            let within = (at % CHUNK as u64) as usize;
            let n = ((CHUNK - within) as u64).min(end - at) as usize;
            let mut shard = self.shard(chunk).write();
            if n == CHUNK {
                shard.remove(&chunk);
            } else if let Some(bytes) = shard.get_mut(&chunk) {
                bytes[within..within + n].fill(0);
            }
            at += n as u64;
        }
        Ok(())
    }

    fn is_read_only(&self) -> bool {
        false
    }
}
