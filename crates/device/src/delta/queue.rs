//! Asynchronous transfers of a copy-on-write device.
//!
//! A transfer that lies in the delta as a whole, or a read of nothing but the base, goes to a queue
//! of that device. All others are performed when they are submitted: reads of both, and first
//! writes to a unit.

use super::DeltaDevice;
use crate::queue::{Completed, DeviceQueue, Direction, Transfer};
use crate::{BlockDevice, part};
use nextent_num::to_u64;
use std::io;

/// The device that has all bytes of a transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Delta,
    Base,
    Both,
}

/// Transfers in flight.
pub(super) struct DeltaQueue<'d, B, S> {
    device: &'d DeltaDevice<B, S>,
    delta: Box<dyn DeviceQueue + 'd>,
    base: Box<dyn DeviceQueue + 'd>,
    /// Transfers that were performed at once.
    done: Vec<Completed>,
}

impl<'d, B: BlockDevice, S: BlockDevice> DeltaQueue<'d, B, S> {
    pub(super) fn new(device: &'d DeltaDevice<B, S>, depth: usize) -> Self {
        let (delta, base) = (device.store.queue(depth), device.base.queue(depth));
        Self { device, delta, base, done: Vec::new() }
    }

    /// Where the bytes of the transfer are.
    fn side(&self, transfer: &Transfer) -> io::Result<Side> {
        let mut all = None;
        for piece in transfer.pieces.as_slice().iter().filter(|piece| piece.len > 0) {
            let len = to_u64(piece.len);
            self.device.check(piece.offset, len)?;
            let end = piece.offset + len;
            let side = match self.device.run(piece.offset, end)? {
                (true, to) if to == end => Side::Delta,
                (false, to) if to == end && end <= self.device.base.size() => Side::Base,
                _ => return Ok(Side::Both),
            };
            if *all.get_or_insert(side) != side {
                return Ok(Side::Both);
            }
        }
        let writes = transfer.direction == Direction::Write;
        Ok(match all {
            // It is read only, or this is the first write to a unit.
            Some(Side::Base) if writes => Side::Both,
            Some(Side::Delta) if writes && self.device.is_read_only() => Side::Both,
            found => found.unwrap_or(Side::Both),
        })
    }
}

impl<B: BlockDevice, S: BlockDevice> DeviceQueue for DeltaQueue<'_, B, S> {
    fn submit(&mut self, mut transfer: Transfer) {
        let to = self.device.place(0);
        match self.side(&transfer) {
            Ok(Side::Delta) => {
                transfer.pieces = part::moved(&transfer.pieces, |offset| offset + to);
                self.delta.submit(transfer);
            }
            Ok(Side::Base) => self.base.submit(transfer),
            Ok(Side::Both) => {
                let result = transfer.perform(self.device);
                self.done.push(Completed { transfer, result });
            }
            Err(error) => self.done.push(Completed { transfer, result: Err(error) }),
        }
    }

    fn complete(&mut self, least: usize, done: &mut Vec<Completed>) {
        let enough = done.len() + least.min(self.in_flight());
        done.append(&mut self.done);
        let from = self.device.place(0);
        loop {
            let first = done.len();
            let waits = usize::from(first < enough);
            // One of the two may be idle; the other one then has all that is missing.
            let of_delta = waits.min(self.delta.in_flight());
            self.delta.complete(of_delta, done);
            for completed in &mut done[first..] {
                let pieces = &completed.transfer.pieces;
                completed.transfer.pieces = part::moved(pieces, |offset| offset - from);
            }
            self.base.complete(waits - of_delta, done);
            if done.len() >= enough {
                return;
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.delta.in_flight() + self.base.in_flight() + self.done.len()
    }
}
