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
use crate::transport::Transport;

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
        let workers = (0..self.threads).map(|_| {
            let server = Arc::clone(&self.connection.server);
            let device = self.connection.device.for_thread();
            self.connection.start_worker(move || serve(&device, &server))
        });
        join(workers.collect())
    }
}

/// Answers requests until the mount ends.
fn serve(device: &Device, server: &Server) -> io::Result<()> {
    let mut message = vec![0; MESSAGE];
    while let Some(len) = device.next(&mut message)? {
        device.answer(server, &mut message, len)?;
    }
    Ok(())
}
