//! A simulated thread: its clock, the code that it has begun, and what it waits for.
//!
//! A core executes ahead while a line is in transfer to it, as far as its reorder buffer (the
//! window) reaches, and requests the next line meanwhile. Rules for when an access is begun:
//!
//! 1. At its place in the code, less all transfers that the core waited for within one window of
//!    code before.
//! 2. Not before the last read-modify-write is done.
//! 3. Not before what the code depends on is there: the point set by [`Task::restart`].
//!
//! Stores wait for their lines in a store buffer, in order, while the core goes on. Only a
//! read-modify-write waits for the buffer to drain.

use crate::simulation::Site;
use std::any::Any;
use std::collections::VecDeque;

/// Waits that a core remembers at most.
const WAITS: usize = 64;

pub(crate) type Coroutine = generator::LocalGenerator<'static, (), ()>;

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing, or its turn.
    Nothing,
    /// A lock, at an address.
    Lock(usize),
    Condition,
    /// The end of a thread.
    End(usize),
}

/// A simulated thread.
pub(crate) struct Task {
    pub(crate) clock: u64,
    /// Code executed so far, and for recent waits: the code executed before, and how long.
    code_done: u64,
    waits: VecDeque<(u64, u64)>,
    /// Nothing is begun before.
    restarted: u64,
    /// When its store buffer is empty.
    pub(crate) stores_done: u64,
    /// When its last read-modify-write was done.
    pub(crate) rmw_done: u64,
    /// Time that it lost to transfers of lines.
    pub(crate) lost: u64,
    pub(crate) core: usize,
    /// Whether no code lies before its next access.
    pub(crate) at_once: bool,
    pub(crate) slot: u16,
    /// Counts its waits. A time limit of an earlier wait is void.
    pub(crate) wait_number: u64,
    /// Whether the last wait ended by its time limit.
    pub(crate) timed_out: bool,
    /// Whether the lock that it waited for was handed to it.
    pub(crate) handed: bool,
    pub(crate) done: bool,
    pub(crate) code: Option<Coroutine>,
    /// The handle by which its coroutine yields.
    pub(crate) handle: *mut (),
    pub(crate) joiners: Vec<usize>,
    /// The lock class of its last access, and the call site.
    pub(crate) class: Option<&'static str>,
    pub(crate) site: Option<Site>,
    pub(crate) locals: Vec<(usize, Box<dyn Any>)>,
    pub(crate) name: Option<String>,
    pub(crate) wait: Wait,
}

impl Task {
    pub(crate) fn new(clock: u64, core: usize, slot: u16, code: Option<Coroutine>) -> Self {
        Self {
            clock,
            code_done: 0,
            waits: VecDeque::new(),
            restarted: clock,
            stores_done: 0,
            rmw_done: 0,
            lost: 0,
            core,
            at_once: false,
            slot,
            wait_number: 0,
            timed_out: false,
            handed: false,
            done: false,
            code,
            handle: std::ptr::null_mut(),
            joiners: Vec::new(),
            class: None,
            site: None,
            locals: Vec::new(),
            name: None,
            wait: Wait::Nothing,
        }
    }

    /// Executes code for so long.
    pub(crate) fn pass(&mut self, time: u64) {
        self.clock += time;
        self.code_done += time;
    }

    /// When its next access is begun, with a window of so much code.
    pub(crate) fn begins(&self, window: u64) -> u64 {
        let within = |(at, _): &&(u64, u64)| at + window > self.code_done;
        let waited: u64 = self.waits.iter().rev().take_while(within).map(|wait| wait.1).sum();
        let begun = self.clock.saturating_sub(waited).max(self.restarted);
        begun.max(self.rmw_done).min(self.clock)
    }

    /// Notes that it waited from then until now, with the next code begun.
    pub(crate) fn has_waited(&mut self, since: u64) {
        if self.clock > since {
            self.waits.push_back((self.code_done, self.clock - since));
        }
        if self.waits.len() > WAITS {
            self.waits.pop_front();
        }
    }

    /// Goes on at `clock` with nothing begun.
    pub(crate) fn restart(&mut self, clock: u64) {
        (self.clock, self.restarted) = (clock, clock);
        self.waits.clear();
    }

    /// Waits until `clock` with nothing begun.
    pub(crate) fn be_at(&mut self, clock: u64) {
        if clock > self.clock {
            self.restart(clock);
        }
    }

    /// Whether it still is in the wait of that number.
    pub(crate) fn waits_for(&self, wait_number: u64) -> bool {
        self.wait_number == wait_number && !self.done
    }

    /// The lock that it waits for, or 0.
    pub(crate) fn address(&self) -> usize {
        if let Wait::Lock(address) = self.wait { address } else { 0 }
    }

    /// What it waits for, in words.
    pub(crate) fn waiting(&self) -> String {
        let class = self.class.unwrap_or("an atomic");
        let site = self.site.map_or_else(String::new, |site| format!(" at {site}"));
        match self.wait {
            Wait::Nothing => format!("was at {class}{site}"),
            Wait::Lock(_) => format!("waits for {class}{site}"),
            Wait::Condition => format!("waits for a condition under {class}, taken{site}"),
            Wait::End(task) => format!("waits for the end of thread {task}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        Task::new(0, 0, 0, None)
    }

    #[test]
    fn a_core_begins_what_its_window_holds() {
        let mut task = task();
        task.be_at(100);
        // It waits for 30 with a window of 20.
        task.clock = 130;
        task.has_waited(100);
        task.pass(15);
        assert_eq!((task.clock, task.begins(20)), (145, 115));
        // A second wait: the next access was begun before both.
        task.clock = 155;
        task.has_waited(145);
        assert_eq!(task.begins(20), 115);
        // The first wait is a window behind.
        task.pass(5);
        assert_eq!((task.clock, task.begins(20)), (160, 150));
        task.pass(15);
        assert_eq!(task.begins(20), 175);
        task.be_at(150);
        assert_eq!(task.clock, 175);
        // Of many waits it remembers the last.
        for _ in 0..2 * WAITS {
            task.clock += 1;
            task.has_waited(task.clock - 1);
        }
        assert_eq!(task.begins(20), task.clock - WAITS as u64);
    }
}
