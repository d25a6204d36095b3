//! A mount over `/dev/fuse` without a library: threads that share one descriptor.
//!
//! It does what the crate `fuser` cannot: mounts of a block device, where the kernel forwards
//! `sync(2)` (`FUSE_SYNCFS`, Linux 6.18) and `umount(2)` waits for the server, and mounts that
//! admit requests by user.

use std::io;
use std::path::Path;

use nextent_sync::{Arc, thread};
use zerocopy::FromBytes;

use crate::Server;
use crate::device::Device;
use crate::device_mount::{DeviceMount, abort, join};
use crate::mount_table;
use crate::scheduling::{Watchdog, WorkerSlots};
use crate::transport::{MountError, Setup, Transport, Unmount};
use crate::wire::{self, InHeader, PAYLOAD};

/// The most bytes of a message before its data.
const HEADERS: usize = 4096;

/// A mount whose requests are read from `/dev/fuse`.
pub struct DirectMount {
    mount: DeviceMount,
    threads: usize,
    /// Where the threads register, if one of them may become the leader.
    slots: Option<WorkerSlots>,
}

impl Transport for DirectMount {
    fn check(point: &Path) -> Result<(), MountError> {
        DeviceMount::check(point)
    }

    fn mount(server: Arc<Server>, point: &Path, setup: &Setup) -> Result<Self, MountError> {
        Self::check(point)?;
        let (mount, _) = DeviceMount::connect(server, point, setup, false, MountError::Refused)?;
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        let threads = setup.threads.unwrap_or_else(cores).max(1);
        Ok(Self { mount, threads, slots: setup.idle.then(WorkerSlots::default) })
    }

    fn unmounter(&mut self) -> Unmount {
        self.mount.unmounter()
    }

    fn serve(self) -> io::Result<()> {
        let watchdog = self.slots.as_ref().and_then(|slots| {
            let waiting = mount_table::waiting(&self.mount.point);
            let watchdog = Watchdog::over_queue(self.threads, waiting)?;
            slots.connect(&watchdog);
            Some(watchdog)
        });
        let slots = self.slots.unwrap_or_default();
        let threads: Vec<_> = (0..self.threads)
            .map(|_| {
                let (DeviceMount { device, server, point }, slots) =
                    (self.mount.clone(), slots.clone());
                thread::spawn(move || {
                    let ended = serve(&device, &server, &slots);
                    // The other threads must not wait for requests that this one leaves unanswered.
                    ended.inspect_err(|_| abort(&point))
                })
            })
            .collect();
        let outcome = join(threads, Ok(()));
        // After the threads that it watched.
        drop(watchdog);
        outcome
    }
}

/// Answers requests until the mount ends.
fn serve(device: &Device, server: &Server, slots: &WorkerSlots) -> io::Result<()> {
    let mut message = vec![0; PAYLOAD + HEADERS];
    loop {
        let Some(len) = device.next(&mut message)? else { return Ok(()) };
        if len == 0 {
            continue;
        }
        let Ok((header, _)) = InHeader::read_from_prefix(&message[..len]) else { continue };
        // No client waits for a message without an answer.
        let answered = wire::is_answered(header.opcode);
        let mut scope = if answered { slots.begin_request(header.pid) } else { None };
        let moved = device.answer(server, &header, (&mut message, len))?;
        scope.iter_mut().for_each(|scope| scope.set_bytes(moved));
    }
}
