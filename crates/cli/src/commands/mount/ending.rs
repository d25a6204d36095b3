//! The end of a mount, by umount(2) of any process or by a signal.
//!
//! A signal (SIGTERM, SIGINT, SIGHUP) always ends the server:
//!
//! 1. Data that only the kernel has is sent to the server.
//! 2. The server tries to unmount for [`GRACE`], or until the next signal.
//! 3. If files are still in use, or the mount is also attached elsewhere (bound to another
//!    directory, held by another mount namespace), it sends data again, detaches the mount and
//!    aborts the connection. Later calls of programs that use the mount fail with `ENOTCONN`.
//! 4. If it may not abort, it closes the volume nevertheless. The connection ends with the process.
//!
//! The volume is closed cleanly in each case.

use super::report::Reporter;
use super::serve::failed;
use super::signals;
use crate::failure::Result;
use nextent_fuse::Attachment;
use nextent_sync::thread::{self, JoinHandle};
use nextent_sync::{Arc, Duration, now};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// The time for programs to close their files after a signal. Callers like apptainer kill a server
/// one second after the signal.
const GRACE: Duration = Duration::from_millis(500);
/// The time between two tries to unmount within it.
const TRIES: Duration = Duration::from_millis(20);
/// The longest time for the threads to end after the connection was aborted: one request.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a waiting server learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Signal,
    /// The thread that serves has returned.
    Served,
}

/// How serving ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The connection has ended, with the result of the threads.
    Served(io::Result<()>),
    /// The kernel may still send requests.
    Connected,
}

/// The signals for this process, caught from the mount on.
pub(super) struct Signals {
    events: UnixStream,
    sender: UnixStream,
}

impl Signals {
    /// Catches signals. Those that end the server have an effect once [`Ending::wait`] is called.
    pub(super) fn catch(reporter: Arc<Reporter>) -> Result<Self> {
        let failed = |error: io::Error| failed(error.to_string());
        let (events, sender) = UnixStream::pair().map_err(failed)?;
        let to_end = sender.try_clone().map_err(failed)?;
        // A signal that cannot be sent finds that the receiver is ending.
        let end = move || drop((&to_end).write_all(&[0]));
        signals::handle(end, reporter).map_err(failed)?;
        Ok(Self { events, sender })
    }
}

/// A mount that is served by another thread, and the signals for it.
pub(super) struct Ending {
    events: UnixStream,
    server: JoinHandle<io::Result<()>>,
}

impl Ending {
    /// Starts the thread that runs `serve`.
    pub(super) fn start(
        signals: Signals,
        serve: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Self {
        let Signals { events, sender } = signals;
        let server = thread::spawn(move || {
            let _sent_at_end = SendAtEnd(sender);
            serve()
        });
        Self { events, server }
    }

    /// Waits for the end of the mount and, after a signal, causes it.
    pub(super) fn wait(mut self, attachment: &Attachment) -> Ended {
        if self.next(None) == Some(Event::Served) {
            return self.served();
        }
        attachment.flush();
        let begun = now();
        while begun.elapsed() < GRACE {
            // An error says that files are in use.
            let _ = attachment.unmount();
            match self.next(Some(TRIES)) {
                Some(Event::Served) => return self.served(),
                Some(Event::Signal) => break,
                None => {}
            }
        }
        attachment.flush();
        // The volume is closed even if the mount stays.
        let _ = attachment.detach();
        if attachment.abort() {
            let begun = now();
            while begun.elapsed() < PATIENCE {
                if self.next(Some(PATIENCE)) == Some(Event::Served) {
                    return self.served();
                }
            }
        }
        Ended::Connected
    }

    fn served(self) -> Ended {
        let served = self.server.join();
        Ended::Served(served.unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))))
    }

    /// Waits for an event, at most for `limit`.
    fn next(&mut self, limit: Option<Duration>) -> Option<Event> {
        let mut byte = [0];
        self.events.set_read_timeout(limit).ok()?;
        loop {
            match self.events.read(&mut byte) {
                Ok(1) if byte == [0] => return Some(Event::Signal),
                Ok(_) => return Some(Event::Served),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }
}

/// Reports the end of the thread that serves, also by a panic.
struct SendAtEnd(UnixStream);

impl Drop for SendAtEnd {
    fn drop(&mut self) {
        let _ = self.0.write_all(&[1]);
    }
}
