//! Jobs for workers, and results for whoever waits for them.
//!
//! A queue ends when nobody can add to it: every job that is waiting or being
//! worked on counts as one who may, and so does the maker until it says
//! [`done`](Queue::done).

use super::locks;
use nextent_sync::{Arc, Condvar, Mutex};
use std::collections::VecDeque;

struct State<J> {
    jobs: VecDeque<J>,
    /// Jobs not yet done, and the maker.
    left: usize,
    /// Workers that wait for a job.
    idle: usize,
}

/// Jobs that wait for a worker.
pub(super) struct Queue<J> {
    state: Mutex<State<J>>,
    /// A job came or everything is done.
    came: Condvar,
    /// A job was taken or done.
    went: Condvar,
}

impl<J> Queue<J> {
    /// An empty queue; its maker may add to it.
    pub(super) fn new() -> Self {
        let state = State { jobs: VecDeque::new(), left: 1, idle: 0 };
        Self { state: Mutex::new(&locks::QUEUE, state), came: Condvar::new(), went: Condvar::new() }
    }

    /// Adds a job.
    pub(super) fn push(&self, job: J) {
        let mut state = self.state.lock();
        state.left += 1;
        state.jobs.push_back(job);
        drop(state);
        self.came.notify_one();
    }

    /// Adds a job once fewer than `most` wait.
    pub(super) fn push_within(&self, job: J, most: usize) {
        let mut state = self.state.lock();
        while state.jobs.len() >= most {
            self.went.wait(&mut state);
        }
        state.left += 1;
        state.jobs.push_back(job);
        drop(state);
        self.came.notify_one();
    }

    /// Adds a job if a worker waits for one that is not there, else gives it back.
    pub(super) fn offer(&self, job: J) -> Option<J> {
        let mut state = self.state.lock();
        if state.idle <= state.jobs.len() {
            return Some(job);
        }
        state.left += 1;
        state.jobs.push_back(job);
        drop(state);
        self.came.notify_one();
        None
    }

    fn take(&self, pop: fn(&mut VecDeque<J>) -> Option<J>) -> Option<J> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = pop(&mut state.jobs) {
                drop(state);
                self.went.notify_all();
                return Some(job);
            }
            if state.left == 0 {
                return None;
            }
            state.idle += 1;
            self.came.wait(&mut state);
            state.idle -= 1;
        }
    }

    /// The latest job, waiting for one; `None` when all is done. [`done`](Self::done) must follow.
    pub(super) fn newest(&self) -> Option<J> {
        self.take(VecDeque::pop_back)
    }

    /// The oldest job, likewise.
    pub(super) fn oldest(&self) -> Option<J> {
        self.take(VecDeque::pop_front)
    }

    /// Says that a job taken is done, or that the maker adds nothing more.
    pub(super) fn done(&self) {
        let mut state = self.state.lock();
        state.left -= 1;
        let last = state.left == 0;
        drop(state);
        self.went.notify_all();
        if last {
            self.came.notify_all();
        }
    }

    /// Says [`done`](Self::done) when it is dropped, so that after a panic no worker waits.
    pub(super) fn ending(&self) -> Ending<'_, J> {
        Ending(self)
    }

    /// Waits until all jobs are done; for the maker.
    pub(super) fn drain(&self) {
        let mut state = self.state.lock();
        while state.left > 1 {
            self.went.wait(&mut state);
        }
    }
}

/// Ends a job, or what the maker adds.
pub(super) struct Ending<'q, J>(&'q Queue<J>);

impl<J> Drop for Ending<'_, J> {
    fn drop(&mut self) {
        self.0.done();
    }
}

/// A place for a result that somebody waits for.
pub(super) struct Slot<T> {
    value: Mutex<Option<T>>,
    set: Condvar,
}

impl<T> Slot<T> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { value: Mutex::new(&locks::SLOT, None), set: Condvar::new() })
    }

    /// Gives the result.
    pub(super) fn set(&self, value: T) {
        *self.value.lock() = Some(value);
        self.set.notify_all();
    }

    /// Waits for the result.
    pub(super) fn take(&self) -> T {
        let mut value = self.value.lock();
        loop {
            if let Some(value) = value.take() {
                return value;
            }
            self.set.wait(&mut value);
        }
    }
}
