//! Buffered calls beside direct ones: what only looks at a file's map, or writes over its blocks,
//! goes with a reference where the file has an open short way to them.
//!
//! That is so if cores have met in the file before (`inode::long`). No alignment is asked for:
//! parts of blocks that hold data go where they are. Whatever else a write needs (holes, growth,
//! parts of unwritten blocks, rights to be taken away) is left to the caller, who then has the
//! file alone.

use std::ops::Range;

use nextent_num::to_u64;
use nextent_ondisk::inode::flags;
use nextent_sync::Arc;

use super::Wait;
use super::refs::Terms;
use crate::Cred;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::inode::long::Transfer;
use crate::ops::Inodes;

impl Inodes {
    /// A reference for a buffered call, if it is to be had by a store of its own slot.
    fn short_way<'i>(&self, inode: &'i Inode) -> Option<Transfer<'i>> {
        // A replacement has the lock and nothing else.
        #[cfg(feature = "lab")]
        if self.fs.direct.get().is_some() {
            return None;
        }
        inode.rw.short()
    }

    /// Writes over blocks that exist; none if there is no short way, false if it is not that simple
    /// or if the map has no room for what is to be converted. All is to be written again then.
    #[inline(never)]
    pub(in super::super) fn overwrite_by_reference(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        range: Range<u64>,
        data: &[u8],
    ) -> Result<Option<bool>> {
        let Some(transfer) = self.short_way(inode) else { return Ok(None) };
        let may = Terms { wait: Wait::Allowed, fills: false };
        let plan = self.plan_beside_others(cred, inode, &transfer, &range, may)?;
        if plan.bytes != data.len() {
            return Ok(Some(false));
        }
        self.write_pieces(inode, &plan, data)?;
        match self.finish(cred, inode, &transfer, plan.finished) {
            Err(Error::NoSpace) => Ok(Some(false)),
            done => done.map(|()| Some(true)),
        }
    }

    /// Fills `buf` from `offset`; none if there is no short way, or if what the file holds is in
    /// its inode.
    #[inline(never)]
    pub(in super::super) fn read_by_short_way(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<Option<usize>> {
        let Some(transfer) = self.short_way(inode) else { return Ok(None) };
        let whole = offset.checked_add(to_u64(buf.len())).is_some();
        if !whole || inode.traits().has_any(flags::INLINE_DATA) {
            return Ok(None);
        }
        let terms = (Wait::Allowed, 1);
        let (len, pieces) = self.plan_reading(inode, &transfer, offset, buf, terms)?;
        for piece in pieces.as_slice() {
            self.device_read(piece.offset, &mut buf[piece.of_buffer()])?;
        }
        Ok(Some(len))
    }
}
