//! The device of a simulated run.
//!
//! Transfers use its bus one after another, in the order of their requests. Each is complete its
//! latency after its turn on the bus, so that latencies of transfers in flight overlap. A requester
//! sleeps until then. The locks and the memory of the device cost the simulated cores nothing.

use nextent_device::queue::{Completed, Transfer};
use nextent_device::{BlockDevice, DeviceQueue, MemoryDevice};
use nextent_sync::atomic::{AtomicU64, Ordering};
use nextent_sync::{Duration, sleep};
use std::collections::VecDeque;
use std::io;

/// The times of a device. By default none: no thread waits for the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Picoseconds from a transfer's turn on the bus until it is complete.
    pub latency: u64,
    /// Picoseconds of the bus for 1 KiB.
    pub kib: u64,
}

/// Memory behind the bus of a [`Device`].
pub(crate) struct SimulatedDevice {
    memory: MemoryDevice,
    cost: Device,
    /// When the bus is free. Relaxed: all simulated threads are coroutines of one thread.
    free_at: AtomicU64,
}

impl SimulatedDevice {
    pub(crate) fn new(memory: MemoryDevice, cost: Device) -> Self {
        Self { memory, cost, free_at: AtomicU64::new(0) }
    }

    /// Requests a transfer of so many bytes. Returns when it is complete.
    fn request(&self, bytes: usize) -> u64 {
        let now = nextent_sim::clock();
        if self.cost == Device::default() || !nextent_sim::is_charging() {
            return now;
        }
        nextent_sim::uncharged(|| {
            let begins = self.free_at.load(Ordering::Relaxed).max(now);
            let done = begins + self.cost.kib * bytes as u64 / 1024;
            self.free_at.store(done, Ordering::Relaxed);
            done + self.cost.latency
        })
    }

    /// Sleeps until a transfer of so many bytes is complete.
    fn wait_for(&self, bytes: usize) {
        sleep_until(self.request(bytes));
    }
}

fn sleep_until(time: u64) {
    let left = time.saturating_sub(nextent_sim::clock());
    if left > 0 {
        sleep(Duration::from_nanos(left.div_ceil(1000)));
    }
}

impl BlockDevice for SimulatedDevice {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.wait_for(buf.len());
        nextent_sim::uncharged(|| self.memory.read_at(offset, buf))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.wait_for(buf.len());
        nextent_sim::uncharged(|| self.memory.write_at(offset, buf))
    }

    fn flush(&self) -> io::Result<()> {
        self.wait_for(0);
        nextent_sim::uncharged(|| self.memory.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        nextent_sim::uncharged(|| self.memory.discard(offset, len))
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        nextent_sim::uncharged(|| self.memory.write_zeroes(offset, len))
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn queue(&self, depth: usize) -> Box<dyn DeviceQueue + '_> {
        let inner = self.memory.queue(depth);
        Box::new(SimulatedQueue { device: self, due: VecDeque::with_capacity(depth), inner })
    }
}

/// Transfers in flight. They are complete in the order of their requests.
struct SimulatedQueue<'d> {
    device: &'d SimulatedDevice,
    due: VecDeque<(u64, Transfer)>,
    inner: Box<dyn DeviceQueue + 'd>,
}

impl DeviceQueue for SimulatedQueue<'_> {
    fn submit(&mut self, transfer: Transfer) {
        let time = self.device.request(transfer.buffer.len());
        self.due.push_back((time, transfer));
    }

    fn complete(&mut self, least: usize, done: &mut Vec<Completed>) {
        let last = least.min(self.due.len()).checked_sub(1);
        if let Some((time, _)) = last.and_then(|last| self.due.get(last)) {
            sleep_until(*time);
        }
        while self.due.front().is_some_and(|(time, _)| *time <= nextent_sim::clock())
            && let Some((_, transfer)) = self.due.pop_front()
        {
            nextent_sim::uncharged(|| {
                self.inner.submit(transfer);
                self.inner.complete(1, done);
            });
        }
    }

    fn in_flight(&self) -> usize {
        self.due.len()
    }
}

impl Drop for SimulatedQueue<'_> {
    fn drop(&mut self) {
        self.complete(usize::MAX, &mut Vec::new());
    }
}
