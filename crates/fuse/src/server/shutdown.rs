//! The shutdown call (`EXT4_IOC_SHUTDOWN`): every later operation fails with EIO, until the mount
//! ends.
//!
//! | mode | before | at the end of the mount |
//! |---|---|---|
//! | 0, flush everything | all changes become durable | the volume is closed cleanly |
//! | 1, flush the log | the same | the same |
//! | 2, flush nothing | the journal stops, as in a crash | nothing is written; the next open replays the journal |
//!
//! As in ext4, cached contents cannot be read any more: the server makes the kernel drop them. A
//! thread of its own does that, since the kernel waits for requests meanwhile. The call waits for
//! it, but not for ever, since the calling thread may be the one to answer them ([`PATIENCE`]).
//! Unlike in ext4, a process that has a file mapped gets SIGBUS. Cached names and attributes can
//! still be read. Stores into mappings that the kernel has not sent are lost.

use std::fs::File;
use std::os::unix::fs::FileExt;

use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{Arc, Duration, now, sleep, thread};

use super::{Caller, Server};
use crate::errno::{Errno, Result, of_node};
use crate::node::node;

/// The longest time for the kernel to drop contents before the call returns.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time between two looks.
const PERIOD: Duration = Duration::from_millis(1);

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
            }
            2 => {
                let _ = self.shutdown.set(Shutdown::Stopped);
                self.volume.stop().map_err(of_node)?;
            }
            _ => return Err(Errno(libc::EINVAL)),
        }
        self.drop_cached_contents();
        Ok(())
    }

    /// Makes the kernel drop the contents of all files that it knows.
    fn drop_cached_contents(&self) {
        let Some(kernel) = self.kernel.get() else { return };
        let forget = Arc::clone(&kernel.forget_contents);
        let inodes = self.volume.pinned();
        let done = Arc::new(AtomicBool::new(false));
        let reports = Arc::clone(&done);
        drop(thread::spawn(move || {
            inodes.into_iter().for_each(|ino| forget(node(ino)));
            reports.store(true, Ordering::Release);
        }));
        let begun = now();
        while !done.load(Ordering::Acquire) && begun.elapsed() < PATIENCE {
            sleep(PERIOD);
        }
    }

    /// Whether every operation fails.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.shutdown.get().is_some()
    }
}
