//! The device for model checkers: under one lock, so that copies are consistent and writes are
//! atomic.

use nextent_device::BlockDevice;
use nextent_sync::{LockClass, Mutex};
use std::io;

static BYTES: LockClass = LockClass::new("model.disk", 900);

/// Bytes in memory. It has few scheduling points, so that models stay small.
pub struct ModelDisk(Mutex<Vec<u8>>);

impl ModelDisk {
    /// A disk of zeros.
    pub fn new(size: u64) -> Self {
        Self::with_bytes(vec![0; size as usize])
    }

    /// A disk with the contents `bytes`.
    pub fn with_bytes(bytes: Vec<u8>) -> Self {
        Self(Mutex::new(&BYTES, bytes))
    }

    /// A copy, as a crash now would leave it.
    pub fn snapshot(&self) -> Self {
        Self::with_bytes(self.0.lock().clone())
    }
}

impl BlockDevice for ModelDisk {
    fn size(&self) -> u64 {
        self.0.lock().len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.lock();
        let at = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)?.get(..buf.len()));
        buf.copy_from_slice(at.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let mut bytes = self.0.lock();
        let at = usize::try_from(offset).ok();
        let at = at.and_then(|at| bytes.get_mut(at..)?.get_mut(..buf.len()));
        at.ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(buf);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        self.write_at(offset, &vec![0; len as usize])
    }

    fn is_read_only(&self) -> bool {
        false
    }
}
