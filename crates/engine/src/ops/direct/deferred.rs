//! Deferring conversions after a write, and completing them for readers of the map.

use std::ops::Range;

use nextent_ondisk::FileBlock;
use nextent_sync::{Arc, BiasedRwLockReadGuard};

use super::Wait;
use crate::Cred;
use crate::alloc::Window;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::inode::rw_lock::SharedIo;
use crate::map::Mapping;
use crate::ops::Inodes;

impl Inodes {
    /// Ends a write inside the file whose data is on the device: defers the conversion of its
    /// unwritten blocks and sets the times. The caller has a transfer in flight.
    ///
    /// # Errors
    /// Errors of setting the times. If this write completes the file's conversions, errors of that;
    /// its own blocks stay deferred then.
    #[inline]
    pub(super) fn defer_conversion(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        io: &SharedIo,
        blocks: &[Range<FileBlock>],
    ) -> Result<()> {
        if !blocks.is_empty() {
            let deferral = io.defer(blocks);
            if deferral.list_file {
                self.fs.list_deferred(inode);
            }
            if deferral.complete {
                self.fs.complete_deferred_shared(inode, io, deferral.wait)?;
            }
            // After the barrier in `defer`: the close may not have found this file on the list.
            if self.fs.is_read_only() {
                self.fs.complete_deferred(inode)?;
            }
        }
        self.touch_times_counted(cred, inode, io)
    }

    /// The result of `look`, a lookup in the map, with every write that ended before the call.
    ///
    /// # Errors
    /// Errors of `look` and of the completion. [`Error::WouldBlock`] if `wait` forbids the
    /// completion.
    #[inline]
    pub(in super::super) fn lookup_completed(
        &self,
        inode: &Arc<Inode>,
        wait: Wait,
        look: impl Fn() -> Result<Mapping>,
    ) -> Result<Mapping> {
        let found = look()?;
        match (&found, inode.rw.io_with_deferred()) {
            (Mapping::Unwritten { .. }, Some(io)) => {
                if !io.map_is_current() {
                    if wait == Wait::Never {
                        return Err(Error::WouldBlock);
                    }
                    self.fs.complete_deferred_shared(inode, io, true)?;
                }
                // In any case: another thread may have completed the conversion since the lookup.
                look()
            }
            _ => Ok(found),
        }
    }

    /// Runs `read`, which completes conversions with the file held shared. If the map has no space
    /// for them, completes them exclusively and runs `read` again.
    pub(in super::super) fn read_completing<R>(
        &self,
        inode: &Arc<Inode>,
        mut read: impl FnMut() -> Result<R>,
    ) -> Result<R> {
        match read() {
            Err(Error::NoSpace) => {
                self.fs.complete_deferred(inode)?;
                read()
            }
            done => done,
        }
    }

    /// Takes `[inode.rw]` shared, with a map that contains every write that ended before the call.
    ///
    /// # Errors
    /// Errors of the completion.
    pub(in super::super) fn lock_shared_completed<'i>(
        &self,
        inode: &'i Arc<Inode>,
    ) -> Result<BiasedRwLockReadGuard<'i, Window>> {
        self.report(self.fs.complete_deferred(inode))?;
        Ok(inode.rw.read())
    }
}
