//! Direct reads and writes: whole sectors between the caller's buffer and the device, many at a
//! time in one file.
//!
//! | what is written | aligned to blocks | not aligned |
//! |---|---|---|
//! | blocks that hold data, inside the file | counted | counted |
//! | unwritten blocks, inside the file | counted; conversion deferred | exclusive |
//! | holes, inside the file | counted; allocated unwritten, conversion deferred | exclusive |
//! | past the end, if that is block-aligned | counted; converted together with the size | exclusive |
//! | anything, if the write drops set-id bits or a capability | exclusive | exclusive |
//! | anything, in an append-only file | exclusive | exclusive |
//!
//! *Counted* means that the transfer is in the file's in-flight I/O count (`inode::rw_lock`). It
//! excludes only exclusive holders: truncate, punch, collapse, insert, zero. Invariants:
//!
//! - An unwritten block becomes written only after all of it is on the device (D1, D2). A reader of
//!   the map first completes deferred conversions (`inode::rw_lock`, `inode::deferred_conversion`).
//! - Only the exclusive holder zeroes parts of blocks (D3).
//! - A thread that shortens the file waits for transfers in flight (D4).
//! - A call with [`Wait::Never`] takes only locks that are free and starts no handle (D5).
//! - The size grows after the data, in the transaction that converts it. Until then all blocks past
//!   the end are unwritten, so no orphan is needed for a crash (D6).
//!
//! A volume of the laboratory may replace how direct writes begin (`replaced`).

mod buffered;
mod completion;
mod counted;
mod deferred;
mod plan;
mod queue;
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
use crate::inode::rw_lock::Transfer;
use crate::ops::Inodes;

/// Offsets and lengths of direct transfers are multiples of this many bytes.
pub(crate) const UNIT: u64 = to_u64(nextent_device::SECTOR);

/// Whether a call may wait for locks, for the journal or for a read of metadata. It waits for the
/// transfer of the data itself in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It may.
    Allowed,
    /// Where it would have to wait it fails with [`Error::WouldBlock`] and has done nothing.
    Never,
}

/// Checks the alignment of a direct transfer.
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
    /// Offsets and lengths of direct transfers are multiples of this many bytes.
    #[must_use]
    pub fn direct_unit(&self) -> u64 {
        UNIT
    }

    /// Fills `buf` from `offset`, like [`read`](Self::read), concurrently with direct writers.
    ///
    /// # Errors
    /// As [`read`](Self::read). [`Error::Invalid`] unless offset and length are multiples of
    /// [`direct_unit`](Self::direct_unit). [`Error::WouldBlock`] if `wait` forbids a wait that is
    /// needed.
    pub fn read_direct(
        &self,
        ino: InodeNo,
        offset: u64,
        buf: &mut [u8],
        wait: Wait,
    ) -> Result<usize> {
        self.read_direct_in(&self.inode(ino)?, offset, buf, wait)
    }

    /// Writes `data` at `offset`, like [`write`](Self::write), concurrently with other direct
    /// writers.
    ///
    /// # Errors
    /// As [`write`](Self::write). [`Error::Invalid`] unless offset and length are multiples of
    /// [`direct_unit`](Self::direct_unit). [`Error::WouldBlock`] if `wait` forbids a wait that is
    /// needed.
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

    /// [`read_direct`](Self::read_direct) of an inode that the caller has.
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
            return self.report(self.read_replaced(inode, offset, buf, wait));
        }
        self.report(
            self.read_completing(inode, || self.read_counted(inode, offset, &mut *buf, wait)),
        )
    }

    /// [`write_direct`](Self::write_direct) to an inode that the caller has.
    pub(super) fn write_direct_in(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
        wait: Wait,
    ) -> Result<usize> {
        let (end, durable) = self.check_write_at(inode, offset, data.len(), wait)?;
        if data.is_empty() {
            return Ok(0);
        }
        if wait == Wait::Never {
            return self.report(self.write_in_place(cred, inode, offset..end, data, wait));
        }
        let done =
            self.attempt(|| self.write_in_place(cred, inode, offset..end, data, Wait::Allowed))?;
        if durable {
            self.sync_inode(inode, false)?;
        }
        Ok(done)
    }

    /// Checks a write before it begins; its end, and whether it must be durable.
    #[inline(always)]
    fn check_write_at(
        &self,
        inode: &Inode,
        offset: u64,
        len: usize,
        wait: Wait,
    ) -> Result<(u64, bool)> {
        check_aligned(offset, len)?;
        let end = offset.checked_add(to_u64(len)).ok_or_else(|| Error::TooBig)?;
        let durable = self.check_direct_write(inode)?;
        if durable && wait == Wait::Never && offset < end {
            return Err(Error::WouldBlock);
        }
        Ok((end, durable))
    }

    /// Runs `operation`, and again after space was reclaimed, if it may wait for that.
    #[inline(always)]
    fn attempt_as<R>(&self, wait: Wait, mut operation: impl FnMut() -> Result<R>) -> Result<R> {
        match wait {
            Wait::Allowed => self.attempt(operation),
            Wait::Never => self.report(operation()),
        }
    }

    /// Counts a transfer in flight.
    #[inline(always)]
    fn begin_transfer<'i>(inode: &'i Inode, wait: Wait) -> Result<Transfer<'i>> {
        match wait {
            Wait::Allowed => Ok(inode.rw.begin_transfer()),
            Wait::Never => inode.rw.try_begin_transfer().ok_or_else(|| Error::WouldBlock),
        }
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
        self.write_counted(cred, inode, range, data, wait)
    }

    /// Whether the file can be written; true if the write must be durable.
    #[inline]
    fn check_direct_write(&self, inode: &Inode) -> Result<bool> {
        self.fs.check_writable()?;
        let snapshot = inode.snapshot();
        match snapshot.file_type() {
            Some(FileType::Regular) if snapshot.has_any(flags::ENCRYPT) => {
                return Err(Error::NoKey);
            }
            Some(FileType::Regular) => {}
            Some(FileType::Directory) => return Err(Error::IsDir),
            _ => return Err(Error::Invalid),
        }
        if snapshot.has_any(flags::FIXED_CONTENTS) {
            return Err(Error::Perm);
        }
        if snapshot.has_any(flags::INLINE_DATA) {
            return Err(Error::unsupported("writing a file with inline data"));
        }
        Ok(snapshot.has_any(flags::SYNC))
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
