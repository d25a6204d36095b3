//! Writing the data of a plan, and the check whether a write needs the file exclusively.

use nextent_ondisk::inode::{flags, mode};

use super::Wait;
use crate::Cred;
use crate::error::{Error, Result};
use crate::inode::rw_lock::Plan;
use crate::inode::{Fs, Inode, attributes};
use crate::ops::Inodes;

impl Inodes {
    /// Writes the data of a plan, and notes the flush that will make it stable.
    pub(super) fn write_pieces(&self, inode: &Inode, plan: &Plan, data: &[u8]) -> Result<()> {
        for piece in plan.pieces.as_slice() {
            self.device_write_one(piece.offset, &data[piece.of_buffer()])?;
        }
        self.set_unflushed(inode);
        Ok(())
    }
}

impl Fs {
    /// Whether a write by `cred` must be done by the exclusive holder: it drops set-id bits or a
    /// capability, or must be checked to append.
    pub(super) fn needs_exclusive(&self, cred: &Cred, inode: &Inode, wait: Wait) -> Result<bool> {
        let snapshot = inode.snapshot();
        if snapshot.has_any(flags::APPEND) {
            return Ok(true);
        }
        if !cred.privileged && snapshot.mode() & (mode::SETUID | mode::SETGID) != 0 {
            return Ok(true);
        }
        match attributes::known_capability(inode) {
            Some(has) => Ok(has),
            None if wait == Wait::Never => Err(Error::WouldBlock),
            None => Ok(attributes::has_capability(self, inode)),
        }
    }
}
