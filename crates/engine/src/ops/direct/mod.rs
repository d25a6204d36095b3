//! Direct reads and writes: whole sectors, between the caller's buffer and the device, many at a
//! time in one file.
//!
//! | what is written | aligned to blocks | not aligned |
//! |---|---|---|
//! | blocks that hold data, inside the file | a reference | a reference |
//! | unwritten blocks, inside the file | a reference; conversion put off | exclusive |
//! | holes, inside the file | a reference; allocated unwritten, conversion put off | exclusive |
//! | past the end, the end being a block's | a reference; the size with the conversion | exclusive |
//! | anything, when the writer takes set-id bits or a capability away | exclusive | exclusive |
//! | anything, of an append-only file | exclusive | exclusive |
//!
//! *A reference* (`inode::long`) excludes nobody but those who hold the file exclusively: truncate,
//! punch, collapse, insert, zero. Times are set with a reference. What stays true:
//!
//! - an unwritten block becomes written only after all of it is on the device (D1, D2), and whoever
//!   looks at the map sees to it that nothing is put off (`inode::long`, `inode::settle`);
//! - parts of blocks are filled with zeros by one thread at a time, the file being its own (D3);
//! - who cuts the file waits for the transfers in flight (D4);
//! - [`Wait::Never`] takes only what is free and starts no handle (D5);
//! - the size grows after the data, in the transaction that converts it; until then all that lies
//!   past the end is unwritten, so it needs no orphan to be safe after a crash (D6).
//!
//! A volume of the laboratory may begin its direct writes in another way (`replaced`).

mod buffered;
mod finish;
mod plan;
mod put_off;
mod queue;
mod refs;
#[cfg(feature = "lab")]
mod replaced;

pub use queue::{Attached, Done, Queue, Refused};

use std::ops::Range;

use nextent_num::to_u64;
use nextent_ondisk::InodeNo;
use nextent_ondisk::inode::flags;
use nextent_sync::Arc;

use super::OpenFile;
use crate::Cred;
use crate::FileType;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::ops::Inodes;

/// Offsets and lengths of direct transfers are multiples of this.
pub(crate) const UNIT: u64 = to_u64(nextent_device::SECTOR);

/// Whether a call may wait for locks, for the journal or for reading metadata. The transfer of
/// the data itself is waited for in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It may.
    Allowed,
    /// Where it would have to, it fails with [`Error::WouldBlock`] and has done nothing.
    Never,
}

/// Whether a transfer may be direct.
///
/// # Errors
/// [`Error::Invalid`] unless both are multiples of [`UNIT`].
pub(super) fn check_aligned(offset: u64, len: usize) -> Result<()> {
    match offset.is_multiple_of(UNIT) && to_u64(len).is_multiple_of(UNIT) {
        true => Ok(()),
        false => Err(Error::Invalid),
    }
}

impl Inodes {
    /// The number of which offsets and lengths of direct transfers are multiples.
    #[must_use]
    pub fn direct_unit(&self) -> u64 {
        UNIT
    }

    /// Fills `buf` from `offset`, as [`read`](Self::read) does, together with direct writers.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Error::Invalid`] unless offset and length are multiples of
    /// [`direct_unit`](Self::direct_unit); [`Error::WouldBlock`] where `wait` forbids to wait.
    pub fn read_direct(
        &self,
        ino: InodeNo,
        offset: u64,
        buf: &mut [u8],
        wait: Wait,
    ) -> Result<usize> {
        self.read_direct_in(&self.inode(ino)?, offset, buf, wait)
    }

    /// Writes `data` at `offset`, as [`write`](Self::write) does, together with other direct
    /// writers.
    ///
    /// # Errors
    /// As [`write`](Self::write); [`Error::Invalid`] unless offset and length are multiples of
    /// [`direct_unit`](Self::direct_unit); [`Error::WouldBlock`] where `wait` forbids to wait.
    pub fn write_direct(
        &self,
        cred: &Cred,
        ino: InodeNo,
        offset: u64,
        data: &[u8],
        wait: Wait,
    ) -> Result<usize> {
        self.write_direct_in(cred, &self.inode(ino)?, offset, data, wait)
    }

    /// [`read_direct`](Self::read_direct) of an inode in hand.
    pub(super) fn read_direct_in(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        buf: &mut [u8],
        wait: Wait,
    ) -> Result<usize> {
        check_aligned(offset, buf.len())?;
        #[cfg(feature = "lab")]
        if self.fs.direct.get().is_some() {
            return self.tell(self.read_replaced(inode, offset, buf, wait));
        }
        self.tell(self.reading(inode, || self.read_by_reference(inode, offset, &mut *buf, wait)))
    }

    /// [`write_direct`](Self::write_direct) to an inode in hand.
    pub(super) fn write_direct_in(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
        wait: Wait,
    ) -> Result<usize> {
        check_aligned(offset, data.len())?;
        let end = offset.checked_add(to_u64(data.len())).ok_or_else(|| Error::TooBig)?;
        let durable = self.check_direct_write(inode)?;
        if data.is_empty() {
            return Ok(0);
        }
        if wait == Wait::Never {
            if durable {
                return Err(Error::WouldBlock);
            }
            return self.tell(self.write_in_place(cred, inode, offset..end, data, wait));
        }
        let done =
            self.attempt(|| self.write_in_place(cred, inode, offset..end, data, Wait::Allowed))?;
        if durable {
            self.sync_inode(inode, false)?;
        }
        Ok(done)
    }

    fn write_in_place(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        range: Range<u64>,
        data: &[u8],
        wait: Wait,
    ) -> Result<usize> {
        #[cfg(feature = "lab")]
        if let Some(rule) = self.fs.direct.get() {
            return self.write_replaced(rule, cred, inode, range, data, wait);
        }
        self.write_by_reference(cred, inode, range, data, wait)
    }

    /// Whether the file can be written; true if what is written must be durable.
    #[inline]
    fn check_direct_write(&self, inode: &Inode) -> Result<bool> {
        self.fs.check_writable()?;
        let traits = inode.traits();
        match traits.file_type() {
            Some(FileType::Regular) => {}
            Some(FileType::Directory) => return Err(Error::IsDir),
            _ => return Err(Error::Invalid),
        }
        if traits.has_any(flags::IMMUTABLE) {
            return Err(Error::Perm);
        }
        if traits.has_any(flags::INLINE_DATA) {
            return Err(Error::unsupported("writing a file with inline data"));
        }
        Ok(traits.has_any(flags::SYNC))
    }
}

impl OpenFile<'_> {
    /// As [`Inodes::read_direct`].
    ///
    /// # Errors
    /// [`Error::Access`] if the file was not opened for reading; else as there.
    pub fn read_direct(&self, offset: u64, buf: &mut [u8], wait: Wait) -> Result<usize> {
        if !self.access.read {
            return Err(Error::Access);
        }
        self.volume.read_direct_in(&self.inode, offset, buf, wait)
    }

    /// As [`Inodes::write_direct`].
    ///
    /// # Errors
    /// [`Error::Access`] if the file was not opened for writing; else as there.
    pub fn write_direct(&self, offset: u64, data: &[u8], wait: Wait) -> Result<usize> {
        self.for_writing()?;
        self.volume.write_direct_in(&self.cred, &self.inode, offset, data, wait)
    }
}
