//! The queue of a device with a delay. Transfers wait for their time in the order of submission and
//! then go to the inner device. No thread sleeps for a transfer; `complete` sleeps until the first
//! one is due.

use super::{Completed, DeviceQueue, Transfer};
use nextent_sync::{Duration, Instant, now, sleep};
use std::collections::VecDeque;

/// Transfers that are not yet due, and those in the inner device.
pub(crate) struct DelayedQueue<'d> {
    inner: Box<dyn DeviceQueue + 'd>,
    delay: Duration,
    waiting: VecDeque<(Instant, Transfer)>,
}

impl<'d> DelayedQueue<'d> {
    pub(crate) fn new(inner: Box<dyn DeviceQueue + 'd>, delay: Duration, depth: usize) -> Self {
        Self { inner, delay, waiting: VecDeque::with_capacity(depth) }
    }

    /// Submits the due transfers to the inner device. Returns the time until the next one is due.
    fn pass(&mut self) -> Option<Duration> {
        let time = now();
        while let Some((due, _)) = self.waiting.front() {
            if *due > time {
                return Some(*due - time);
            }
            if let Some((_, transfer)) = self.waiting.pop_front() {
                self.inner.submit(transfer);
            }
        }
        None
    }
}

impl DeviceQueue for DelayedQueue<'_> {
    fn submit(&mut self, transfer: Transfer) {
        self.waiting.push_back((now() + self.delay, transfer));
    }

    fn complete(&mut self, least: usize, done: &mut Vec<Completed>) {
        let enough = done.len() + least.min(self.in_flight());
        loop {
            let next = self.pass();
            self.inner.complete(0, done);
            if done.len() >= enough {
                return;
            }
            match next {
                Some(time) if self.inner.in_flight() == 0 => sleep(time),
                // A transfer that becomes due during this wait is submitted after it.
                _ => self.inner.complete(1, done),
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.waiting.len() + self.inner.in_flight()
    }
}

impl Drop for DelayedQueue<'_> {
    fn drop(&mut self) {
        let all = self.in_flight();
        self.complete(all, &mut Vec::new());
    }
}
