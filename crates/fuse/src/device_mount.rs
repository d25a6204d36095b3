//! A mount whose requests are read from `/dev/fuse`: threads with a descriptor each, all of which
//! read from one queue.

use std::io;
use std::path::Path;

use nextent_sync::{Arc, thread};

use crate::Server;
use crate::attachment::Attachment;
use crate::connection::{Connection, join};
use crate::device::{Device, MESSAGE};
use crate::mounting;
use crate::setup::{MountError, Setup};
use crate::space_wait::Waiters;
use crate::transport::Transport;

/// Requests that wait for space at a time, at most. Each has a thread and a copy of its message.
const WAITERS: usize = 64;

/// A mount over `/dev/fuse`.
pub struct DeviceMount {
    pub(crate) connection: Connection,
    threads: usize,
}

impl DeviceMount {
    /// Serves `connection` by `threads` threads; by default, one for each core.
    pub(crate) fn over(connection: Connection, threads: Option<usize>) -> Self {
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        Self { connection, threads: threads.unwrap_or_else(cores).max(1) }
    }
}

impl Transport for DeviceMount {
    fn check(point: &Path) -> Result<(), MountError> {
        mounting::check(point)
    }

    fn mount(server: Arc<Server>, point: &Path, setup: &Setup) -> Result<Self, MountError> {
        Self::check(point)?;
        let (connection, _) = Connection::open(server, point, setup, false)?;
        Ok(Self::over(connection, setup.threads))
    }

    fn attachment(&self) -> Arc<Attachment> {
        self.connection.attachment()
    }

    fn serve(self) -> io::Result<()> {
        let waiters = Waiters::new(WAITERS);
        let workers = (0..self.threads).map(|_| {
            let waiters = Arc::clone(&waiters);
            let server = Arc::clone(&self.connection.server);
            let device = self.connection.device.for_thread();
            self.connection.start_worker(move || serve(&device, &server, &waiters))
        });
        let ended = join(workers.collect());
        waiters.finish();
        ended
    }
}

/// Answers requests until the mount ends.
fn serve(device: &Arc<Device>, server: &Arc<Server>, waiters: &Arc<Waiters>) -> io::Result<()> {
    let mut message = vec![0; MESSAGE];
    while let Some(len) = device.next(&mut message)? {
        device.answer_or_wait(server, (&mut message, len), waiters)?;
    }
    Ok(())
}
