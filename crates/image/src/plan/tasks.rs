//! The tasks of filling an image, and which one a thread takes next.
//!
//! The planner is one of the threads: where it would wait for a listing, or has posted too many
//! moves, it does tasks itself. Moves come first, since they free buffers that later listings
//! need. Where the host lets one thread write at a time, a thread that would wait to write lists a
//! directory instead.

use super::super::locks;
use super::contents::Job;
use super::list::Listing;
use super::{List, Result};
use nextent_sync::{Arc, Condvar, Mutex};
use std::collections::VecDeque;

/// The most moves that wait for a thread.
const WAITING: usize = 8;

/// A task for any thread.
pub(super) enum Task {
    List(List),
    /// A move, and whether it excludes other writers.
    Move(Job, bool),
}

/// The listing of a directory, once it is made.
pub(super) struct ListingSlot(Mutex<Option<Result<Listing>>>);

impl ListingSlot {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(&locks::SLOT, None)))
    }
}

#[derive(Default)]
struct TaskState {
    lists: VecDeque<List>,
    moves: VecDeque<Job>,
    /// An exclusive writer is busy.
    writing: bool,
    /// The planner adds no more tasks.
    ended: bool,
}

/// The tasks that wait for a thread.
pub(super) struct TaskQueue {
    state: Mutex<TaskState>,
    /// There is a task, or the planner has ended.
    work: Condvar,
    /// A task was done, which the planner waits for.
    done: Condvar,
    one_writer: bool,
}

impl TaskState {
    fn take(&mut self, one_writer: bool) -> Option<Task> {
        let exclusive = |job: &Job| one_writer && job.only_writes();
        if self.moves.front().is_some_and(|job| !(self.writing && exclusive(job))) {
            let job = self.moves.pop_front()?;
            let exclusive = exclusive(&job);
            self.writing |= exclusive;
            return Some(Task::Move(job, exclusive));
        }
        self.lists.pop_front().map(Task::List)
    }
}

impl TaskQueue {
    pub(super) fn new(one_writer: bool) -> Self {
        let state = Mutex::new(&locks::QUEUE, TaskState::default());
        Self { state, work: Condvar::new(), done: Condvar::new(), one_writer }
    }

    /// Adds a listing.
    pub(super) fn list(&self, list: List) {
        self.state.lock().lists.push_back(list);
        self.work.notify_one();
    }

    /// Adds a move; the caller does tasks by `run` while too many wait.
    pub(super) fn post(&self, job: Job, run: impl FnMut(Task)) {
        self.help(run, |state| state.moves.len() < WAITING);
        self.state.lock().moves.push_back(job);
        self.work.notify_one();
    }

    /// The listing in `slot`; the caller does tasks by `run` until it is there.
    pub(super) fn listing(&self, slot: &ListingSlot, mut run: impl FnMut(Task)) -> Result<Listing> {
        loop {
            self.help(&mut run, |_| slot.0.lock().is_some());
            if let Some(listing) = slot.0.lock().take() {
                return listing;
            }
        }
    }

    /// Stores a listing that is done.
    pub(super) fn listed(&self, slot: &ListingSlot, listing: Result<Listing>) {
        *slot.0.lock() = Some(listing);
        self.wake_planner();
    }

    /// Ends a move.
    pub(super) fn moved(&self, exclusive: bool) {
        if exclusive {
            self.state.lock().writing = false;
            self.work.notify_one();
        }
        self.wake_planner();
    }

    /// Wakes the planner. Taking the lock first ensures that a planner which saw the old state
    /// already sleeps.
    fn wake_planner(&self) {
        drop(self.state.lock());
        self.done.notify_all();
    }

    /// Does tasks until `enough`, and waits where there are none.
    fn help(&self, mut run: impl FnMut(Task), enough: impl Fn(&TaskState) -> bool) {
        let mut state = self.state.lock();
        while !enough(&state) {
            match state.take(self.one_writer) {
                Some(task) => {
                    drop(state);
                    run(task);
                    state = self.state.lock();
                }
                None => self.done.wait(&mut state),
            }
        }
    }

    /// Does tasks until the planner has ended and none is left.
    pub(super) fn work(&self, mut run: impl FnMut(Task)) {
        let mut state = self.state.lock();
        loop {
            if let Some(task) = state.take(self.one_writer) {
                drop(state);
                run(task);
                state = self.state.lock();
            } else if state.ended && state.moves.is_empty() {
                // Other threads may wait for the last move to be taken.
                self.work.notify_all();
                return;
            } else {
                self.work.wait(&mut state);
            }
        }
    }

    /// Ends the planner's part; listings that wait are dropped.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        state.lists.clear();
        drop(state);
        self.work.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_dirs::HostDirRef;
    use nextent_sync::atomic::{AtomicUsize, Ordering};
    use nextent_sync::thread;
    use std::path::Path;

    /// Every listing arrives, every move is done once, at most one thread writes, and all end.
    fn round(workers: usize, one_writer: bool) {
        let tasks = TaskQueue::new(one_writer);
        let (moved, writing) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let run = |task| match task {
            Task::List(List { slot, .. }) => {
                let (names, found, buffers) = (Vec::new(), Vec::new(), Vec::new());
                tasks.listed(&slot, Ok(Listing { names, found, buffers, kept: None }));
            }
            Task::Move(_, exclusive) => {
                assert_eq!(exclusive, one_writer);
                let before = writing.fetch_add(1, Ordering::Relaxed);
                assert!(!exclusive || before == 0, "two write");
                thread::yield_now();
                writing.fetch_sub(1, Ordering::Relaxed);
                moved.fetch_add(1, Ordering::Relaxed);
                tasks.moved(exclusive);
            }
        };
        let dir = HostDirRef::top(Path::new("d"));
        thread::scope(|scope| {
            for _ in 1..workers {
                scope.spawn(|| tasks.work(run));
            }
            for _ in 0..50 {
                let slot = ListingSlot::new();
                tasks.list(List { dir: Arc::clone(&dir), kept: None, slot: Arc::clone(&slot) });
                for _ in 0..3 {
                    tasks.post(Job::Rendered(Arc::clone(&dir), Vec::new()), run);
                }
                assert!(tasks.listing(&slot, run).is_ok());
            }
            tasks.list(List { dir: Arc::clone(&dir), kept: None, slot: ListingSlot::new() });
            tasks.end();
            tasks.work(run);
        });
        assert_eq!(moved.load(Ordering::Relaxed), 150);
    }

    #[test]
    fn any_number_of_threads_does_all_tasks() {
        for _ in 0..20 {
            for workers in [1, 2, 3, 8] {
                round(workers, false);
                round(workers, true);
            }
        }
    }
}
