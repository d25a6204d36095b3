//! A mount over `/dev/fuse` without a library: threads that share one descriptor.
//!
//! For what the crate `fuser` has no part of: the request that forwards `sync(2)`
//! (`FUSE_SYNCFS`), which Linux 6.18 makes of mounts that have a block device, the synchronous end
//! of such mounts, and requests that are admitted by user.

use std::io;
use std::path::{Path, PathBuf};

use nextent_sync::{Arc, thread};
use zerocopy::FromBytes;

use crate::Server;
use crate::device::Device;
use crate::mount::{check_device, check_point, unmount};
use crate::rings::{abort, agree};
use crate::sentry::{Places, Sentry};
use crate::table;
use crate::transport::{MountError, Setup, Transport, Unmount};
use crate::wire::{self, InHeader, PAYLOAD};

/// Bytes of a message before its data, at most.
const HEADERS: usize = 4096;

/// A mount whose requests are read from `/dev/fuse`.
pub struct DirectMount {
    device: Arc<Device>,
    server: Arc<Server>,
    point: PathBuf,
    threads: usize,
    /// Where the threads find their places, if one of them may answer alone.
    places: Option<Places>,
}

impl Transport for DirectMount {
    fn check(point: &Path) -> Result<(), MountError> {
        check_point(point)?;
        check_device()
    }

    fn mount(server: Arc<Server>, point: &Path, setup: &Setup) -> Result<Self, MountError> {
        Self::check(point)?;
        let device = Device::mount(point, setup).map_err(MountError::Refused)?;
        let point = std::fs::canonicalize(point).unwrap_or_else(|_| point.into());
        let agreed = agree(&device, &server, setup, false).inspect_err(|_| abort(&point));
        agreed.map_err(MountError::Refused)?;
        table::tune(&point);
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        let threads = setup.threads.unwrap_or_else(cores).max(1);
        let places = setup.idle.then(Places::default);
        Ok(Self { device: Arc::new(device), server, point, threads, places })
    }

    fn unmounter(&mut self) -> Unmount {
        let point = self.point.clone();
        Box::new(move || unmount(&point))
    }

    fn serve(self) -> io::Result<()> {
        let sentry = self.places.as_ref().and_then(|places| {
            let sentry = Sentry::over_queue(self.threads, table::waiting(&self.point))?;
            places.open(&sentry);
            Some(sentry)
        });
        let places = self.places.unwrap_or_default();
        let (device, server) = (Arc::clone(&self.device), Arc::clone(&self.server));
        let late = thread::spawn(move || server.tell_late(|node| device.forget_attributes(node)));
        let threads: Vec<_> = (0..self.threads)
            .map(|_| {
                let (device, server) = (Arc::clone(&self.device), Arc::clone(&self.server));
                let (places, point) = (places.clone(), self.point.clone());
                thread::spawn(move || {
                    let ended = serve(&device, &server, &places);
                    // The other threads must not wait for what this one has left.
                    ended.inspect_err(|_| abort(&point))
                })
            })
            .collect();
        let mut outcome = Ok(());
        for thread in threads {
            let ended =
                thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
            outcome = outcome.and(ended);
        }
        self.server.end_late();
        let _ = late.join();
        // After the threads that it watched.
        drop(sentry);
        outcome
    }
}

/// Answers requests until the mount ends.
fn serve(device: &Device, server: &Server, places: &Places) -> io::Result<()> {
    let mut message = vec![0; PAYLOAD + HEADERS];
    loop {
        let Some(len) = device.next(&mut message)? else { return Ok(()) };
        if len == 0 {
            continue;
        }
        let Ok((header, _)) = InHeader::read_from_prefix(&message[..len]) else { continue };
        // Nobody waits for what has no answer, so it is not a client's.
        let answered = wire::is_answered(header.opcode);
        let mut turn = if answered { places.turn(header.pid) } else { None };
        let moved = device.answer(server, &header, (&mut message, len))?;
        turn.iter_mut().for_each(|turn| turn.moves(moved));
    }
}
