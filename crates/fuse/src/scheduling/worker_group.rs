//! Threads that read one queue, as those of `/dev/fuse` do. While there is one client, one of them,
//! the leader, answers all requests.
//!
//! The kernel wakes the thread that has slept longest, on a core that need not be the client's, so
//! each request wakes two cores. A single leader can be kept on its client's core.
//!
//! | mode | threads that answer | next |
//! |---|---|---|
//! | `All` | all | `Electing` by [`WorkerGroup::elect_leader`] |
//! | `Electing` | all, until the first is done | `Leader` by [`WorkerGroup::wait_until_needed`] |
//! | `Leader(n)` | thread `n` | `All` by [`WorkerGroup::release_all`] |
//! | `Closed` | all | none; by [`WorkerGroup::close`], from any mode |
//!
//! Invariants: a thread sleeps only while another answers, or will after its next request. No
//! thread sleeps after `release_all`, or once a thread of the group has ended.
//!
//! The watchdog decides when there is one client ([`super::leader_policy`]); the leader finds the
//! core ([`super::client_follower`]).

use nextent_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use nextent_sync::{CachePadded, Condvar, LockClass, Mutex};
use rustix::thread::CpuSet;

/// Held to change which threads answer, and to wait for that.
static GROUP: LockClass = LockClass::new("fuse.worker_group", 3);

/// All threads answer, in [`WorkerGroup::hint`].
const ALL: usize = usize::MAX;

/// The next thread becomes the leader, likewise.
const ELECTING: usize = usize::MAX - 1;

/// Which threads answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupMode {
    All,
    /// The next thread that is done becomes the leader.
    Electing,
    Leader(usize),
    /// All, for the rest of the mount.
    Closed,
}

/// The threads of one queue.
pub(super) struct WorkerGroup {
    mode: Mutex<GroupMode>,
    changed: Condvar,
    /// A copy of `mode` for threads between two requests. Relaxed: a thread that misses a change
    /// answers one more request.
    hint: CachePadded<AtomicUsize>,
    notes: Vec<CachePadded<RequestNote>>,
    /// Cores of this process.
    anywhere: CpuSet,
}

/// A thread's record of its requests. Stored by the thread only, loaded by the watchdog; orders
/// nothing.
#[derive(Default)]
pub(super) struct RequestNote {
    client: AtomicU32,
    changes: AtomicU64,
    stream: AtomicBool,
    busy: AtomicBool,
}

impl GroupMode {
    fn leader(self) -> Option<usize> {
        match self {
            Self::Leader(n) => Some(n),
            _ => None,
        }
    }
}

impl WorkerGroup {
    /// A group of `threads` threads that run on any core of `anywhere`. All of them answer.
    pub(super) fn new(threads: usize, anywhere: CpuSet) -> Self {
        Self {
            mode: Mutex::new(&GROUP, GroupMode::All),
            changed: Condvar::new(),
            hint: CachePadded::new(AtomicUsize::new(ALL)),
            notes: (0..threads).map(|_| CachePadded::default()).collect(),
            anywhere,
        }
    }

    pub(super) fn anywhere(&self) -> &CpuSet {
        &self.anywhere
    }

    pub(super) fn note(&self, n: usize) -> &RequestNote {
        &self.notes[n]
    }

    pub(super) fn notes(&self) -> impl Iterator<Item = &RequestNote> {
        self.notes.iter().map(|note| &**note)
    }

    /// From here on the next thread that is done becomes the leader, and the others sleep.
    pub(super) fn elect_leader(&self) {
        let mut mode = self.mode.lock();
        if *mode == GroupMode::All {
            self.set(&mut mode, GroupMode::Electing);
        }
    }

    /// From here on all threads answer; the leader until now.
    pub(super) fn release_all(&self) -> Option<usize> {
        let mut mode = self.mode.lock();
        let before = *mode;
        if before != GroupMode::Closed {
            self.set(&mut mode, GroupMode::All);
        }
        before.leader()
    }

    /// As [`Self::release_all`], for the rest of the mount: a thread has ended.
    pub(super) fn close(&self) {
        self.set(&mut self.mode.lock(), GroupMode::Closed);
    }

    /// The leader, if there is one.
    pub(super) fn leader(&self) -> Option<usize> {
        self.mode.lock().leader()
    }

    /// Whether thread `n` is the leader, by the copy that needs no lock.
    pub(super) fn is_leader(&self, n: usize) -> bool {
        self.hint.load(Ordering::Relaxed) == n
    }

    /// Runs `act` if thread `n` is the leader, which it stays meanwhile.
    pub(super) fn while_leader(&self, n: usize, act: impl FnOnce()) {
        let mode = self.mode.lock();
        if *mode == GroupMode::Leader(n) {
            act();
        }
    }

    fn set(&self, mode: &mut GroupMode, to: GroupMode) {
        *mode = to;
        let hint = match to {
            GroupMode::All | GroupMode::Closed => ALL,
            GroupMode::Electing => ELECTING,
            GroupMode::Leader(n) => n,
        };
        self.hint.store(hint, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Returns when thread `n` is to answer more requests.
    pub(super) fn wait_until_needed(&self, n: usize) {
        let hint = self.hint.load(Ordering::Relaxed);
        if hint == ALL || hint == n {
            return;
        }
        let mut mode = self.mode.lock();
        loop {
            match *mode {
                GroupMode::Electing => return self.set(&mut mode, GroupMode::Leader(n)),
                GroupMode::Leader(leader) if leader != n => self.changed.wait(&mut mode),
                _ => return,
            }
        }
    }
}

impl RequestNote {
    /// A request of `client` begins. The client has changed `changes` times before.
    pub(super) fn begin(&self, client: u32, changes: u64) {
        self.client.store(client, Ordering::Relaxed);
        self.changes.store(changes, Ordering::Relaxed);
        self.busy.store(true, Ordering::Relaxed);
    }

    /// The request is answered; whether it was part of a stream.
    pub(super) fn end(&self, stream: bool) {
        self.stream.store(stream, Ordering::Relaxed);
        self.busy.store(false, Ordering::Relaxed);
    }

    /// The thread that made the last request.
    pub(super) fn client(&self) -> u32 {
        self.client.load(Ordering::Relaxed)
    }

    /// How often the client has changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    pub(super) fn is_stream(&self) -> bool {
        self.stream.load(Ordering::Relaxed)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(feature = "model-shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn the_first_thread_that_is_done_leads_until_all_are_released() {
        let group = WorkerGroup::new(3, CpuSet::new());
        group.wait_until_needed(1);
        assert_eq!(group.leader(), None);
        group.elect_leader();
        assert_eq!(group.leader(), None);
        group.wait_until_needed(1);
        group.wait_until_needed(1);
        group.elect_leader();
        assert_eq!(group.leader(), Some(1));
        assert!(group.is_leader(1) && !group.is_leader(2));
        let (mut first, mut second) = (false, false);
        group.while_leader(1, || first = true);
        group.while_leader(2, || second = true);
        assert!(first && !second);
        assert_eq!(group.release_all(), Some(1));
        assert_eq!((group.release_all(), group.leader()), (None, None));
        group.wait_until_needed(2);
        group.elect_leader();
        group.wait_until_needed(2);
        assert_eq!(group.leader(), Some(2));
        group.close();
        group.wait_until_needed(0);
        group.elect_leader();
        group.wait_until_needed(1);
        assert_eq!(group.leader(), None);
    }

    #[test]
    fn a_note_keeps_the_last_request() {
        let group = WorkerGroup::new(1, CpuSet::new());
        let note = group.note(0);
        note.begin(7, 1);
        assert!(note.is_busy() && note.client() == 7 && note.changes() == 1);
        note.end(false);
        assert!(!note.is_busy() && !note.is_stream());
        note.end(true);
        assert!(note.is_stream());
    }
}

#[cfg(all(test, feature = "model-shuttle"))]
mod models {
    use super::*;
    use nextent_sync::{Arc, shuttle, thread};

    const THREADS: usize = 3;

    /// Threads that answer a few requests each and end, while one or all are asked to answer: each
    /// comes to its end.
    fn model() {
        let group = Arc::new(WorkerGroup::new(THREADS, CpuSet::new()));
        let answer = |n: usize| {
            let group = Arc::clone(&group);
            thread::spawn(move || {
                for _ in 0..3 {
                    group.wait_until_needed(n);
                }
                group.close();
            })
        };
        let threads: Vec<_> = (0..THREADS).map(answer).collect();
        for _ in 0..2 {
            group.elect_leader();
            group.release_all();
        }
        group.elect_leader();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(group.leader(), None);
    }

    /// Among threads that have slept, all but one stay asleep while there is a leader.
    fn one_leader() {
        let group = Arc::new(WorkerGroup::new(THREADS, CpuSet::new()));
        let passed = Arc::new(AtomicU32::new(0));
        group.elect_leader();
        let threads: Vec<_> = (0..THREADS)
            .map(|n| {
                let (group, passed) = (Arc::clone(&group), Arc::clone(&passed));
                thread::spawn(move || {
                    group.wait_until_needed(n);
                    passed.fetch_add(1, Ordering::SeqCst);
                    let before = passed.load(Ordering::SeqCst);
                    assert!(before == 1 || group.leader().is_none());
                    if before == 1 && group.leader() == Some(n) {
                        group.release_all();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(passed.load(Ordering::SeqCst), THREADS as u32);
    }

    #[test]
    fn every_thread_ends() {
        shuttle::check_random(model, 2000);
    }

    #[test]
    fn one_thread_leads() {
        shuttle::check_random(one_leader, 2000);
    }
}
