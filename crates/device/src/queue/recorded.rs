//! The queue of a recording device. Transfers take effect, and are logged, alternately at the
//! earliest and at the latest possible time, so that a crash in between sees both cases.

use super::{Completed, DeviceQueue, Transfer};
use crate::{BlockDevice, RecordingDevice};

/// Transfers that took effect but are not returned, and those that did not yet.
pub(crate) struct Recorded<'d, D: BlockDevice> {
    device: &'d RecordingDevice<D>,
    early: Vec<Completed>,
    late: Vec<Transfer>,
    odd: bool,
}

impl<'d, D: BlockDevice> Recorded<'d, D> {
    pub(crate) fn new(device: &'d RecordingDevice<D>, depth: usize) -> Self {
        let (early, late) = (Vec::with_capacity(depth), Vec::with_capacity(depth));
        Self { device, early, late, odd: false }
    }
}

impl<D: BlockDevice> DeviceQueue for Recorded<'_, D> {
    fn submit(&mut self, mut transfer: Transfer) {
        self.odd = !self.odd;
        if self.odd {
            return self.late.push(transfer);
        }
        let result = transfer.perform(self.device);
        self.early.push(Completed { transfer, result });
    }

    fn complete(&mut self, least: usize, done: &mut Vec<Completed>) {
        let mut left = least;
        while left > 0 {
            let Some(mut transfer) = self.late.pop() else { break };
            let result = transfer.perform(self.device);
            done.push(Completed { transfer, result });
            left -= 1;
        }
        let more = self.early.len().min(left.max(1));
        done.extend(self.early.drain(..more));
    }

    fn in_flight(&self) -> usize {
        self.early.len() + self.late.len()
    }
}

impl<D: BlockDevice> Drop for Recorded<'_, D> {
    fn drop(&mut self) {
        self.complete(usize::MAX, &mut Vec::new());
    }
}
