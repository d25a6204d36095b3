//! The default queue, for devices without waiting or without a better way: `submit` performs the
//! transfer.

use super::{Completed, DeviceQueue, Transfer};
use crate::BlockDevice;

/// A queue that performs each transfer when it is submitted.
pub struct ImmediateQueue<'d, D: ?Sized> {
    device: &'d D,
    done: Vec<Completed>,
}

impl<'d, D: BlockDevice + ?Sized> ImmediateQueue<'d, D> {
    /// A queue on `device` for `depth` transfers.
    pub fn new(device: &'d D, depth: usize) -> Self {
        Self { device, done: Vec::with_capacity(depth) }
    }
}

impl<D: BlockDevice + ?Sized> DeviceQueue for ImmediateQueue<'_, D> {
    fn submit(&mut self, mut transfer: Transfer) {
        let result = transfer.perform(self.device);
        self.done.push(Completed { transfer, result });
    }

    fn complete(&mut self, _: usize, done: &mut Vec<Completed>) {
        done.append(&mut self.done);
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }
}
