//! The queue of a device that answers later: transfers wait for their time in the order in which
//! they came, then go to the device beneath. No thread sleeps for one of them; who completes
//! sleeps until the first is due.

use super::{Completed, DeviceQueue, Transfer};
use nextent_sync::{Duration, Instant, now, sleep};
use std::collections::VecDeque;

/// Transfers that are not due yet, and those the device beneath has.
pub(crate) struct Late<'d> {
    inner: Box<dyn DeviceQueue + 'd>,
    delay: Duration,
    waiting: VecDeque<(Instant, Transfer)>,
}

impl<'d> Late<'d> {
    pub(crate) fn new(inner: Box<dyn DeviceQueue + 'd>, delay: Duration, depth: usize) -> Self {
        Self { inner, delay, waiting: VecDeque::with_capacity(depth) }
    }

    /// Hands on what is due; when the next one will be.
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

impl DeviceQueue for Late<'_> {
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
                // What is due later than that will find its time passed.
                _ => self.inner.complete(1, done),
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.waiting.len() + self.inner.in_flight()
    }
}

impl Drop for Late<'_> {
    fn drop(&mut self) {
        let all = self.in_flight();
        self.complete(all, &mut Vec::new());
    }
}
