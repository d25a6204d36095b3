//! The shutdown call (`EXT4_IOC_SHUTDOWN`): every later operation fails with EIO, until the mount
//! ends.
//!
//! | mode | before | at the end of the mount |
//! |---|---|---|
//! | 0, flush everything | all changes become durable | the volume is closed cleanly |
//! | 1, flush the log | the same | the same |
//! | 2, flush nothing | the journal stops, as in a crash | nothing is written; the next open replays the journal |
//!
//! Contents and attributes in the kernel's caches can still be read, since the kernel does not ask
//! the server for them. Stores into mappings that the kernel has not sent are lost.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::{Caller, Server};
use crate::errno::{Errno, Result, of_node};

/// `EXT4_IOC_SHUTDOWN`, also `FS_IOC_SHUTDOWN` and `XFS_IOC_GOINGDOWN`.
pub(crate) const SHUTDOWN: u32 = 0x8004_587d;

/// How a volume was shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shutdown {
    Flushed,
    /// As in a crash.
    Stopped,
}

impl Server {
    /// Shuts the volume down. `argument` is the address of the mode in the memory of the calling
    /// thread `pid`: the number of the call says that it only returns data, so the kernel does not
    /// send the mode.
    pub(crate) fn shut_down(&self, who: Caller, pid: u32, argument: u64) -> Result<()> {
        if who.uid != 0 || self.admission().idmapped {
            return Err(Errno(libc::EPERM));
        }
        let mut mode = [0; 4];
        let memory = File::open(format!("/proc/{pid}/mem"));
        let read = memory.and_then(|memory| memory.read_exact_at(&mut mode, argument));
        read.map_err(|_| Errno(libc::EFAULT))?;
        match u32::from_ne_bytes(mode) {
            0 | 1 => {
                self.sync()?;
                let _ = self.shutdown.set(Shutdown::Flushed);
                Ok(())
            }
            2 => {
                let _ = self.shutdown.set(Shutdown::Stopped);
                self.volume.stop().map_err(of_node)
            }
            _ => Err(Errno(libc::EINVAL)),
        }
    }

    /// Whether every operation fails.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.shutdown.get().is_some()
    }
}
