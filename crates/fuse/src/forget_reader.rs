//! Reads the messages that the kernel sends to `/dev/fuse` while requests come over io_uring:
//! forgets, interrupts, and requests from before the rings were registered.

use std::io;

use nextent_sync::{Arc, Duration, LockClass, Mutex, sleep};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno as Os;

use crate::Server;
use crate::device::{Device, MESSAGE};

/// How long messages without an answer may wait.
const REST: Duration = Duration::from_millis(1);

/// Held from reading a message until it is handled, so that a later holder finds it complete.
static READER: LockClass = LockClass::new("fuse.device", 1);

/// The reader of one mount.
pub(crate) struct ForgetReader {
    device: Arc<Device>,
    /// The message that is handled. \[fuse.device\]
    message: Mutex<Vec<u8>>,
}

/// The result of reading all messages.
enum Drained {
    /// None is left; whether one of them had no answer.
    Dry(bool),
    /// The mount has ended.
    Over,
}

impl ForgetReader {
    /// From here on reads of `device` return at once.
    pub(crate) fn new(device: Arc<Device>) -> io::Result<Self> {
        device.set_nonblocking()?;
        Ok(Self { device, message: Mutex::new(&READER, vec![0; MESSAGE]) })
    }

    /// Handles messages until the mount ends. These may wait: no client waits for most of them, and
    /// forgets come in groups.
    pub(crate) fn serve(&self, server: &Server) -> io::Result<()> {
        loop {
            match poll(&mut [PollFd::new(self.device.file(), PollFlags::IN)], None) {
                Ok(_) | Err(Os::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            match self.drain(server)? {
                Drained::Over => return Ok(()),
                // While no thread reads, the kernel wakes no core for the next messages.
                Drained::Dry(true) => sleep(REST),
                Drained::Dry(false) => {}
            }
        }
    }

    /// Handles all forgets that the kernel has sent before this call.
    pub(crate) fn catch_up(&self, server: &Server) {
        // The thread in `serve` sees the error, too.
        let _ = self.drain(server);
    }

    /// Handles all messages that are there.
    fn drain(&self, server: &Server) -> io::Result<Drained> {
        let mut buf = self.message.lock();
        let mut unanswered = false;
        loop {
            match self.device.next(&mut buf)? {
                None => return Ok(Drained::Over),
                Some(0) => return Ok(Drained::Dry(unanswered)),
                Some(n) => unanswered |= !self.device.answer(server, &mut buf, n)?,
            }
        }
    }
}
