//! Queues of jobs for workers, and slots for their results.
//!
//! A queue ends when no thread can add to it. It counts the jobs that wait or are being done, which
//! may add others, and its maker, until that calls [`done`](Queue::done).

use super::locks;
use nextent_sync::{Arc, Condvar, Mutex};
use std::collections::VecDeque;

struct QueueState<J> {
    jobs: VecDeque<J>,
    /// Jobs that are not done, and the maker.
    left: usize,
    /// Workers that wait for a job.
    idle: usize,
}

/// Jobs that wait for a worker.
pub(super) struct Queue<J> {
    state: Mutex<QueueState<J>>,
    /// A job was added, or all jobs are done.
    added: Condvar,
    /// A job was taken or done.
    taken: Condvar,
}

impl<J> Queue<J> {
    /// An empty queue, to which its maker may add.
    pub(super) fn new() -> Self {
        let state = QueueState { jobs: VecDeque::new(), left: 1, idle: 0 };
        Self {
            state: Mutex::new(&locks::QUEUE, state),
            added: Condvar::new(),
            taken: Condvar::new(),
        }
    }

    /// Adds a job.
    pub(super) fn push(&self, job: J) {
        let mut state = self.state.lock();
        state.left += 1;
        state.jobs.push_back(job);
        drop(state);
        self.added.notify_one();
    }

    /// Adds a job once fewer than `most` wait.
    pub(super) fn push_within(&self, job: J, most: usize) {
        let mut state = self.state.lock();
        while state.jobs.len() >= most {
            self.taken.wait(&mut state);
        }
        state.left += 1;
        state.jobs.push_back(job);
        drop(state);
        self.added.notify_one();
    }

    /// Adds a job if a worker would otherwise wait, else returns it.
    pub(super) fn offer(&self, job: J) -> Option<J> {
        let mut state = self.state.lock();
        if state.idle <= state.jobs.len() {
            return Some(job);
        }
        state.left += 1;
        state.jobs.push_back(job);
        drop(state);
        self.added.notify_one();
        None
    }

    fn take(&self, pop: fn(&mut VecDeque<J>) -> Option<J>) -> Option<J> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = pop(&mut state.jobs) {
                drop(state);
                self.taken.notify_all();
                return Some(job);
            }
            if state.left == 0 {
                return None;
            }
            state.idle += 1;
            self.added.wait(&mut state);
            state.idle -= 1;
        }
    }

    /// Waits for a job and takes the newest; `None` when all are done. The caller must call
    /// [`done`](Self::done) after the job.
    pub(super) fn newest(&self) -> Option<J> {
        self.take(VecDeque::pop_back)
    }

    /// As [`newest`](Self::newest), but takes the oldest job.
    pub(super) fn oldest(&self) -> Option<J> {
        self.take(VecDeque::pop_front)
    }

    /// A taken job is done, or the maker adds no more.
    pub(super) fn done(&self) {
        let mut state = self.state.lock();
        state.left -= 1;
        let last = state.left == 0;
        drop(state);
        self.taken.notify_all();
        if last {
            self.added.notify_all();
        }
    }

    /// Calls [`done`](Self::done) when it is dropped, so that no worker waits after a panic.
    pub(super) fn ending(&self) -> Ending<'_, J> {
        Ending(self)
    }

    /// Waits until all jobs are done. Called by the maker.
    pub(super) fn drain(&self) {
        let mut state = self.state.lock();
        while state.left > 1 {
            self.taken.wait(&mut state);
        }
    }
}

/// Calls [`Queue::done`] when it is dropped.
pub(super) struct Ending<'q, J>(&'q Queue<J>);

impl<J> Drop for Ending<'_, J> {
    fn drop(&mut self) {
        self.0.done();
    }
}

/// A result that another thread waits for.
pub(super) struct ResultSlot<T> {
    value: Mutex<Option<T>>,
    set: Condvar,
}

impl<T> ResultSlot<T> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { value: Mutex::new(&locks::SLOT, None), set: Condvar::new() })
    }

    /// Stores the result.
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
