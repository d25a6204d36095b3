//! Buffered reads and overwrites that are counted in flight instead of locking the file.
//!
//! They do so if the file has an open fast path (`inode::rw_lock`), that is, after several slots
//! have used the file. No alignment is required: parts of blocks that hold data are written in
//! place. Other writes (holes, growth, parts of unwritten blocks, rights to be dropped) are left to
//! the caller, which then locks the file exclusively.

use std::ops::Range;

use nextent_num::to_u64;
use nextent_ondisk::inode::flags;
use nextent_sync::Arc;

use super::Wait;
use super::counted::WriteTerms;
use crate::Cred;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::inode::rw_lock::Transfer;
use crate::ops::Inodes;

impl Inodes {
    /// Begins a transfer if the fast path is open.
    fn try_fast_transfer<'i>(&self, inode: &'i Inode) -> Option<Transfer<'i>> {
        // A replacement uses only the lock.
        #[cfg(feature = "lab")]
        if self.fs.direct.get().is_some() {
            return None;
        }
        inode.rw.try_fast_transfer()
    }

    /// Overwrites existing blocks. `None` if the fast path is closed. False if the write needs
    /// more, or if the map has no space for the conversion; then the caller writes everything
    /// again.
    #[inline(never)]
    pub(in super::super) fn overwrite_counted(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        range: Range<u64>,
        data: &[u8],
    ) -> Result<Option<bool>> {
        let Some(transfer) = self.try_fast_transfer(inode) else { return Ok(None) };
        let terms = WriteTerms { wait: Wait::Allowed, allocates: false };
        let plan = self.plan_shared_write(cred, inode, &transfer, &range, terms)?;
        if plan.bytes != data.len() {
            return Ok(Some(false));
        }
        self.write_pieces(inode, &plan, data)?;
        match self.complete_write(cred, inode, &transfer, plan.conversion) {
            Err(Error::NoSpace) => Ok(Some(false)),
            done => done.map(|()| Some(true)),
        }
    }

    /// Fills `buf` from `offset`. `None` if the fast path is closed, or if the file has inline
    /// data.
    #[inline(never)]
    pub(in super::super) fn read_fast_path(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<Option<usize>> {
        let Some(transfer) = self.try_fast_transfer(inode) else { return Ok(None) };
        let whole = offset.checked_add(to_u64(buf.len())).is_some();
        if !whole || inode.snapshot().has_any(flags::INLINE_DATA) {
            return Ok(None);
        }
        let terms = (Wait::Allowed, 1);
        let (len, pieces) = self.plan_read(inode, &transfer, offset, buf, terms)?;
        for piece in pieces.as_slice() {
            self.device_read(piece.offset, &mut buf[piece.of_buffer()])?;
        }
        Ok(Some(len))
    }
}
