//! Buffered reads: from the device directly into the caller's buffer.

use nextent_num::{must_fit, to_u64, to_usize};
use nextent_ondisk::inode::flags;
use nextent_ondisk::{FileBlock, InodeNo};
use nextent_sync::Arc;

use super::Wait;
use crate::alloc::Privilege;
use crate::error::Result;
use crate::inode::{Inode, attributes};
use crate::map::{self, Mapping};
use crate::ops::Inodes;

impl Inodes {
    /// Fills `buf` from `offset`; fewer bytes only at the end of the file. Holes and unwritten
    /// blocks read as zeros. Takes `[inode.rw]` shared.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io), damaged maps, [`Error::IsDir`](crate::Error::IsDir).
    pub fn read(&self, ino: InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let inode = self.inode(ino)?;
        self.read_in(&inode, offset, buf)
    }

    /// [`read`](Self::read) of an inode that the caller has.
    pub(crate) fn read_in(&self, inode: &Arc<Inode>, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_completing(inode, || self.read_once(inode, offset, &mut *buf))
    }

    fn read_once(&self, inode: &Arc<Inode>, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let contended = inode.rw.last_held_by_other_slot();
        if contended && let Some(len) = self.report(self.read_fast_path(inode, offset, buf))? {
            return Ok(len);
        }
        let guard = inode.rw.read();
        if contended {
            inode.rw.note_shared(&guard);
        }
        // Under the lock: the number may have become a directory's meanwhile.
        self.check_regular(inode)?;
        let (size, inline) =
            inode.with(|state| (state.disk.size, state.has_flag(flags::INLINE_DATA)));
        let Some(left) = size.checked_sub(offset).filter(|left| *left > 0) else { return Ok(0) };
        let len = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let buf = &mut buf[..len];
        let done = if inline {
            attributes::read_inline(&self.fs, inode, offset, buf)
        } else {
            self.read_mapped(inode, offset, buf)
        };
        done.map_err(|error| self.fs.report_error(error))?;
        Ok(len)
    }

    /// Fills `buf` through the map of `inode`, whose `[inode.rw]` is held.
    fn read_mapped(&self, inode: &Arc<Inode>, offset: u64, buf: &mut [u8]) -> Result<()> {
        let block_size = self.fs.block_size();
        let cx = self.fs.map_cx(inode, Privilege::User);
        let mut done = 0;
        while done < buf.len() {
            let at = offset + to_u64(done);
            let within = at % block_size;
            let left = to_u64(buf.len() - done);
            let Ok(block) = u32::try_from(at / block_size) else {
                buf[done..].fill(0);
                break;
            };
            let want = must_fit((within + left).div_ceil(block_size).min(u64::from(u32::MAX)));
            let look = || map::lookup(&cx, &inode.map.read(), FileBlock(block), want);
            let found = self.lookup_completed(inode, Wait::Allowed, look)?;
            let bytes = to_usize((u64::from(found.len()) * block_size - within).min(left));
            let part = &mut buf[done..done + bytes];
            match found {
                Mapping::Written { start, .. } => {
                    self.device_read(start.0 * block_size + within, part)?;
                }
                _ => part.fill(0),
            }
            done += bytes;
        }
        Ok(())
    }
}
