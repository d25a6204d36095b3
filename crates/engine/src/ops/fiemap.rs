//! `FIEMAP`: the extents of a file.

use nextent_ondisk::InodeNo;
use nextent_ondisk::inode::flags;

use super::{file_block, max_size};
use crate::FileExtent;
use crate::alloc::Privilege;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::map::{self, ExtentState};
use crate::ops::Inodes;

impl Inodes {
    /// At most `max` extents that overlap the `len` bytes from `start`, in order. The last extent
    /// of the file has `last` set.
    ///
    /// # Errors
    /// Damaged maps; [`Error::Invalid`] for files without a map and for an empty range;
    /// [`Error::TooBig`] past the largest size.
    pub fn fiemap(
        &self,
        ino: InodeNo,
        start: u64,
        len: u64,
        max: usize,
    ) -> Result<Vec<FileExtent>> {
        if len == 0 {
            return Err(Error::Invalid);
        }
        let inode = self.inode(ino)?;
        let _guard = self.lock_shared_completed(&inode)?;
        super::still_in_use(&inode)?;
        if inode.with(|state| state.has_flag(flags::INLINE_DATA)) {
            return Ok(self.inline_extent(&inode).into_iter().take(max).collect());
        }
        if !inode.with(|state| state.has_map()) {
            return Err(Error::Invalid);
        }
        if start > max_size(&self.fs.geometry, true) {
            return Err(Error::TooBig);
        }
        self.mapped_extents(&inode, start, start.saturating_add(len), max)
            .map_err(|error| self.fs.report_error(error))
    }

    fn inline_extent(&self, inode: &Inode) -> Option<FileExtent> {
        let size = inode.with(|state| state.disk.size);
        let (logical, physical) = (0, 0);
        let whole =
            FileExtent { logical, physical, len: size, unwritten: false, inline: true, last: true };
        (size > 0).then_some(whole)
    }

    fn mapped_extents(
        &self,
        inode: &Inode,
        start: u64,
        end: u64,
        max: usize,
    ) -> Result<Vec<FileExtent>> {
        let block_size = self.fs.block_size();
        let cx = self.fs.map_cx(inode, Privilege::User);
        let root = inode.map.read();
        let mut found: Vec<FileExtent> = Vec::new();
        let mut at = file_block(start / block_size)?;
        loop {
            let next = map::next_extent(&cx, &root, at)?;
            let Some(extent) = next else {
                if let Some(last) = found.last_mut() {
                    last.last = true;
                }
                return Ok(found);
            };
            let logical = u64::from(extent.at.0) * block_size;
            if logical >= end || found.len() >= max {
                return Ok(found);
            }
            found.push(FileExtent {
                logical,
                physical: extent.start.0 * block_size,
                len: u64::from(extent.len) * block_size,
                unwritten: extent.state == ExtentState::Unwritten,
                inline: false,
                last: false,
            });
            at = extent.end();
        }
    }
}
