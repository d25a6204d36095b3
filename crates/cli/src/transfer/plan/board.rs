//! The work of a filling, and who does what next.
//!
//! As many threads as there are workers, the planner among them: where it would have to wait, for a
//! listing or because much is to be moved already, it does some of the work instead. Moves go
//! first, since they free what the listings of later directories need; where the host lets one
//! write at a time, a thread that would wait to write lists a directory instead.

use super::super::locks;
use super::contents::Job;
use super::list::Listing;
use super::{List, Result};
use nextent_sync::{Arc, Condvar, Mutex};
use std::collections::VecDeque;

/// Moves that may wait for a thread.
const WAITING: usize = 8;

/// Something to do.
pub(super) enum Task {
    List(List),
    /// And whether it is the one writer's.
    Move(Job, bool),
}

/// The listing of a directory, once it was made.
pub(super) struct Slot(Mutex<Option<Result<Listing>>>);

impl Slot {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(&locks::SLOT, None)))
    }
}

#[derive(Default)]
struct State {
    lists: VecDeque<List>,
    moves: VecDeque<Job>,
    /// The one writer is busy.
    writing: bool,
    /// The planner adds nothing more.
    ended: bool,
}

/// What is to be done.
pub(super) struct Board {
    state: Mutex<State>,
    /// There is something to do, or never will be again.
    work: Condvar,
    /// A task was done; the planner waits for that.
    done: Condvar,
    one_writer: bool,
}

impl State {
    fn take(&mut self, one_writer: bool) -> Option<Task> {
        let alone = |job: &Job| one_writer && job.only_writes();
        if self.moves.front().is_some_and(|job| !(self.writing && alone(job))) {
            let job = self.moves.pop_front()?;
            let alone = alone(&job);
            self.writing |= alone;
            return Some(Task::Move(job, alone));
        }
        self.lists.pop_front().map(Task::List)
    }
}

impl Board {
    pub(super) fn new(one_writer: bool) -> Self {
        let state = Mutex::new(&locks::QUEUE, State::default());
        Self { state, work: Condvar::new(), done: Condvar::new(), one_writer }
    }

    /// Asks for a listing.
    pub(super) fn list(&self, list: List) {
        self.state.lock().lists.push_back(list);
        self.work.notify_one();
    }

    /// Asks for a move; the caller does work while too many wait.
    pub(super) fn post(&self, job: Job, run: impl FnMut(Task)) {
        self.help(run, |state| state.moves.len() < WAITING);
        self.state.lock().moves.push_back(job);
        self.work.notify_one();
    }

    /// The listing that was asked for with `slot`; the caller does work until it is there.
    pub(super) fn listing(&self, slot: &Slot, mut run: impl FnMut(Task)) -> Result<Listing> {
        loop {
            self.help(&mut run, |_| slot.0.lock().is_some());
            if let Some(listing) = slot.0.lock().take() {
                return listing;
            }
        }
    }

    /// Gives a listing to who asked for it.
    pub(super) fn listed(&self, slot: &Slot, listing: Result<Listing>) {
        *slot.0.lock() = Some(listing);
        self.tell();
    }

    /// Says that a move is done.
    pub(super) fn moved(&self, alone: bool) {
        if alone {
            self.state.lock().writing = false;
            self.work.notify_one();
        }
        self.tell();
    }

    /// Nobody who looked before this is still on the way to sleep when it is told.
    fn tell(&self) {
        drop(self.state.lock());
        self.done.notify_all();
    }

    /// Does what is to be done until `enough`, waiting where there is nothing.
    fn help(&self, mut run: impl FnMut(Task), enough: impl Fn(&State) -> bool) {
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

    /// Does what is to be done until the planner has said that it was all.
    pub(super) fn work(&self, mut run: impl FnMut(Task)) {
        let mut state = self.state.lock();
        loop {
            if let Some(task) = state.take(self.one_writer) {
                drop(state);
                run(task);
                state = self.state.lock();
            } else if state.ended && state.moves.is_empty() {
                // Whoever waited for the last move to be taken may go as well.
                self.work.notify_all();
                return;
            } else {
                self.work.wait(&mut state);
            }
        }
    }

    /// Says that nothing more comes; what was to be listed is not wanted any more.
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
    use crate::transfer::host_dirs::HostDirRef;
    use nextent_sync::atomic::{AtomicUsize, Ordering};
    use nextent_sync::thread;
    use std::path::Path;

    /// Every listing arrives, every move is done once, at most one writes, and all threads end.
    fn round(workers: usize, one_writer: bool) {
        let board = Board::new(one_writer);
        let (moved, writing) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let run = |task| match task {
            Task::List(List { slot, .. }) => {
                let (names, found, buffers) = (Vec::new(), Vec::new(), Vec::new());
                board.listed(&slot, Ok(Listing { names, found, buffers }));
            }
            Task::Move(_, alone) => {
                assert_eq!(alone, one_writer);
                let before = writing.fetch_add(1, Ordering::Relaxed);
                assert!(!alone || before == 0, "two write");
                thread::yield_now();
                writing.fetch_sub(1, Ordering::Relaxed);
                moved.fetch_add(1, Ordering::Relaxed);
                board.moved(alone);
            }
        };
        let dir = HostDirRef::top(Path::new("d"));
        thread::scope(|scope| {
            for _ in 1..workers {
                scope.spawn(|| board.work(run));
            }
            for _ in 0..50 {
                let slot = Slot::new();
                board.list(List { dir: Arc::clone(&dir), slot: Arc::clone(&slot) });
                for _ in 0..3 {
                    board.post(Job::Rendered(Arc::clone(&dir), Vec::new()), run);
                }
                assert!(board.listing(&slot, run).is_ok());
            }
            board.list(List { dir: Arc::clone(&dir), slot: Slot::new() });
            board.end();
            board.work(run);
        });
        assert_eq!(moved.load(Ordering::Relaxed), 150);
    }

    #[test]
    fn any_number_of_threads_does_all() {
        for _ in 0..20 {
            for workers in [1, 2, 3, 8] {
                round(workers, false);
                round(workers, true);
            }
        }
    }
}
