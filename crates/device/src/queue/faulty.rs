//! The queue of a device that fails according to a plan. The faults of a transfer are decided at
//! its submission, in the order of submissions. They take effect at its completion, which reports
//! them.

use super::{Completed, DeviceQueue, Direction, Piece, Transfer, outside};
use crate::fault::{Fault, FaultDevice, OpKind};
use crate::{BlockDevice, SECTOR};
use nextent_num::to_u64;
use nextent_sync::{Instant, now, sleep};
use std::io;

/// A transfer with faults.
struct Struck {
    due: Instant,
    transfer: Transfer,
    /// One for each piece.
    faults: Vec<Option<Fault>>,
}

/// Transfers in flight, without and with faults.
pub(crate) struct Faulty<'d, D: BlockDevice> {
    device: &'d FaultDevice<D>,
    inner: Box<dyn DeviceQueue + 'd>,
    struck: Vec<Struck>,
}

impl<'d, D: BlockDevice> Faulty<'d, D> {
    pub(crate) fn new(device: &'d FaultDevice<D>, depth: usize) -> Self {
        Self { device, inner: device.inner().queue(depth), struck: Vec::new() }
    }

    /// Completes the faulty transfers that are due. Returns the time at which the next one is due.
    fn strike(&mut self, done: &mut Vec<Completed>) -> Option<Instant> {
        let time = now();
        for mut struck in self.struck.extract_if(.., |struck| struck.due <= time) {
            let result = struck.happen(self.device.inner());
            done.push(Completed { transfer: struck.transfer, result });
        }
        self.struck.iter().map(|struck| struck.due).min()
    }
}

impl Struck {
    fn happen<D: BlockDevice>(&mut self, device: &D) -> io::Result<()> {
        let Transfer { direction, buffer, pieces, .. } = &mut self.transfer;
        let failed = |errno| Err(io::Error::from_raw_os_error(errno));
        for (piece, fault) in pieces.as_slice().iter().zip(&self.faults) {
            let len = match fault {
                Some(Fault::Error(errno)) => return failed(*errno),
                Some(Fault::Torn { sectors }) if *direction == Direction::Write => {
                    piece.len.min(sectors * SECTOR)
                }
                Some(Fault::Torn { .. }) => return failed(libc::EIO),
                Some(Fault::Lost) if *direction == Direction::Write => 0,
                Some(Fault::Lost | Fault::Delay(_)) | None => piece.len,
            };
            let part = Piece { len, ..*piece };
            let Some(memory) = buffer.get_mut(part.of_buffer()) else { return Err(outside()) };
            match *direction {
                Direction::Read => device.read_at(piece.offset, memory)?,
                Direction::Write => device.write_at(piece.offset, memory)?,
            }
            if matches!(fault, Some(Fault::Torn { .. })) {
                return failed(libc::EIO);
            }
        }
        Ok(())
    }
}

impl<D: BlockDevice> DeviceQueue for Faulty<'_, D> {
    fn submit(&mut self, transfer: Transfer) {
        let kind = match transfer.direction {
            Direction::Read => OpKind::Read,
            Direction::Write => OpKind::Write,
        };
        let mut due = now();
        let mut decide = |piece: &Piece| {
            let fault = self.device.strike(kind, piece.offset, to_u64(piece.len));
            if let Some(Fault::Delay(time)) = &fault {
                due += *time;
            }
            fault
        };
        let faults: Vec<_> = transfer.pieces.as_slice().iter().map(&mut decide).collect();
        if faults.iter().all(Option::is_none) {
            return self.inner.submit(transfer);
        }
        self.struck.push(Struck { due, transfer, faults });
    }

    fn complete(&mut self, least: usize, done: &mut Vec<Completed>) {
        let enough = done.len() + least.min(self.in_flight());
        loop {
            let next = self.strike(done);
            self.inner.complete(0, done);
            if done.len() >= enough {
                return;
            }
            match next {
                Some(due) if self.inner.in_flight() == 0 => {
                    sleep(due.saturating_duration_since(now()));
                }
                _ => self.inner.complete(1, done),
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.struck.len() + self.inner.in_flight()
    }
}

impl<D: BlockDevice> Drop for Faulty<'_, D> {
    fn drop(&mut self) {
        let all = self.in_flight();
        self.complete(all, &mut Vec::new());
    }
}
