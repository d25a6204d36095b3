//! Conversions put off: by writers when their data is on the device, and settled for readers who
//! would otherwise believe that a block is unwritten.

use std::ops::Range;

use nextent_ondisk::FileBlock;
use nextent_sync::{Arc, BiasedRwLockReadGuard};

use super::Wait;
use crate::Cred;
use crate::alloc::Window;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::inode::long::Refs;
use crate::map::Mapping;
use crate::ops::Inodes;

impl Inodes {
    /// Ends a write inside the file whose data is on the device: what of it went to unwritten
    /// blocks is put off. The caller has a reference.
    ///
    /// # Errors
    /// Of setting the times; of settling, when it is this writer's turn: what was written stays put
    /// off then.
    #[inline]
    pub(super) fn put_off(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        refs: &Refs,
        blocks: &[Range<FileBlock>],
    ) -> Result<()> {
        if !blocks.is_empty() {
            let put = refs.defer(blocks);
            if put.first {
                self.fs.note_unsettled(inode);
            }
            if put.settle {
                self.fs.settle_beside_others(inode, refs, put.wait)?;
            }
            // After the barrier in `defer`: the close may have passed this file by.
            if self.fs.is_read_only() {
                self.fs.settle(inode)?;
            }
        }
        self.touch_by_reference(cred, inode, refs)
    }

    /// What `look` says of blocks of a file, with all that was written to it before.
    ///
    /// # Errors
    /// Of `look` and of settling; [`Error::WouldBlock`] where `wait` forbids that.
    #[inline]
    pub(in super::super) fn look_settled(
        &self,
        inode: &Arc<Inode>,
        wait: Wait,
        look: impl Fn() -> Result<Mapping>,
    ) -> Result<Mapping> {
        let found = look()?;
        match (&found, inode.rw.deferring()) {
            (Mapping::Unwritten { .. }, Some(refs)) => {
                if !refs.is_settled() {
                    if wait == Wait::Never {
                        return Err(Error::WouldBlock);
                    }
                    self.fs.settle_beside_others(inode, refs, true)?;
                }
                // Again in any case: it may have been settled between the two looks.
                look()
            }
            _ => Ok(found),
        }
    }

    /// Does `read`, which looks as above with the file shared; where that finds no room for the
    /// map, once more when it was settled with the file alone.
    pub(in super::super) fn reading<R>(
        &self,
        inode: &Arc<Inode>,
        mut read: impl FnMut() -> Result<R>,
    ) -> Result<R> {
        match read() {
            Err(Error::NoSpace) => {
                self.fs.settle(inode)?;
                read()
            }
            done => done,
        }
    }

    /// Takes `[inode.rw]` shared of a file whose map says all that was written before.
    ///
    /// # Errors
    /// Of settling.
    pub(in super::super) fn read_settled<'i>(
        &self,
        inode: &'i Arc<Inode>,
    ) -> Result<BiasedRwLockReadGuard<'i, Window>> {
        self.tell(self.fs.settle(inode))?;
        Ok(inode.rw.read())
    }
}
