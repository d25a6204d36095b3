//! `SEEK_DATA` and `SEEK_HOLE`.

use nextent_ondisk::InodeNo;
use nextent_ondisk::inode::flags;

use super::file_block;
use crate::SeekKind;
use crate::alloc::Privilege;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::map;
use crate::ops::Inodes;

impl Inodes {
    /// The first offset from `offset` on where `what` begins. Unwritten blocks count as holes.
    ///
    /// # Errors
    /// [`Error::NoData`] at or after the end, or when only a hole follows.
    pub fn seek(&self, ino: InodeNo, offset: u64, what: SeekKind) -> Result<u64> {
        let inode = self.regular(ino)?;
        let _guard = self.lock_shared_completed(&inode)?;
        super::still_in_use(&inode)?;
        self.check_regular(&inode)?;
        let (size, inline) =
            inode.with(|state| (state.disk.size, state.has_flag(flags::INLINE_DATA)));
        if offset >= size {
            return Err(Error::NoData);
        }
        if inline {
            return Ok(if what == SeekKind::Data { offset } else { size });
        }
        self.report(self.seek_mapped(&inode, offset, size, what))
    }

    fn seek_mapped(&self, inode: &Inode, offset: u64, size: u64, what: SeekKind) -> Result<u64> {
        let block_size = self.fs.block_size();
        let cx = self.fs.map_cx(inode, Privilege::User);
        let root = inode.map.read();
        // A damaged size may exceed what a map can address: the rest is a hole.
        let end = file_block(size.div_ceil(block_size)).unwrap_or(map::END_OF_BLOCKS);
        let at = file_block(offset / block_size).unwrap_or(map::END_OF_BLOCKS);
        let found = match what {
            SeekKind::Data => map::next_data(&cx, &root, at, end)?.ok_or_else(|| Error::NoData)?,
            SeekKind::Hole => map::next_hole(&cx, &root, at, end)?,
        };
        Ok((u64::from(found.0) * block_size).clamp(offset, size))
    }
}
