//! The queue of devices that need no time, or know no better way: all is done in `submit`.

use super::{Completed, DeviceQueue, Transfer};
use crate::BlockDevice;

/// A queue that is never behind.
pub struct AtOnce<'d, D: ?Sized> {
    device: &'d D,
    done: Vec<Completed>,
}

impl<'d, D: BlockDevice + ?Sized> AtOnce<'d, D> {
    /// A queue on `device` for `depth` transfers.
    pub fn new(device: &'d D, depth: usize) -> Self {
        Self { device, done: Vec::with_capacity(depth) }
    }
}

impl<D: BlockDevice + ?Sized> DeviceQueue for AtOnce<'_, D> {
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
