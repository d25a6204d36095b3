//! Threads that share one queue, as those of `/dev/fuse` do, of which one answers alone while there
//! is one client.
//!
//! The kernel wakes whichever of them has slept longest, on a core that need not be the client's,
//! so each request wakes two cores. One thread alone can be kept on its client's core.
//!
//! What this promises:
//!
//! - Who rests does so because another thread answers, or will after its next request.
//! - Nobody rests once all are called, or once any thread of the crew has ended.
//!
//! When there is one client is the sentry's to say ([`super::lead`]), where it is the lead's
//! ([`super::follow`]).

use nextent_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use nextent_sync::{CachePadded, Condvar, LockClass, Mutex};
use rustix::thread::CpuSet;

/// Held to change who answers, and to wait for that.
static CREW: LockClass = LockClass::new("fuse.crew", 3);

/// All answer, in [`Crew::hint`].
const ALL: usize = usize::MAX;

/// Who comes first is to answer alone, likewise.
const VACANT: usize = usize::MAX - 1;

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duty {
    All,
    /// One, who is not found yet.
    Vacant,
    Alone(usize),
    /// All, for the rest of the mount.
    Over,
}

/// The threads of one queue.
pub(super) struct Crew {
    duty: Mutex<Duty>,
    changed: Condvar,
    /// What `duty` is, for threads between two requests. Relaxed: who misses a change answers one
    /// more request.
    hint: CachePadded<AtomicUsize>,
    notes: Vec<CachePadded<Note>>,
    /// Cores of this process.
    anywhere: CpuSet,
}

/// What a thread says of its requests. Stored by the thread only, loaded by the sentry; nothing is
/// ordered by it.
#[derive(Default)]
pub(super) struct Note {
    client: AtomicU32,
    changes: AtomicU64,
    stream: AtomicBool,
    busy: AtomicBool,
}

impl Duty {
    fn lead(self) -> Option<usize> {
        match self {
            Self::Alone(n) => Some(n),
            _ => None,
        }
    }
}

impl Crew {
    /// Of `threads` threads, all of which answer, on any core of `anywhere`.
    pub(super) fn new(threads: usize, anywhere: CpuSet) -> Self {
        Self {
            duty: Mutex::new(&CREW, Duty::All),
            changed: Condvar::new(),
            hint: CachePadded::new(AtomicUsize::new(ALL)),
            notes: (0..threads).map(|_| CachePadded::default()).collect(),
            anywhere,
        }
    }

    pub(super) fn anywhere(&self) -> &CpuSet {
        &self.anywhere
    }

    pub(super) fn note(&self, n: usize) -> &Note {
        &self.notes[n]
    }

    pub(super) fn notes(&self) -> impl Iterator<Item = &Note> {
        self.notes.iter().map(|note| &**note)
    }

    /// From here on whichever thread comes first answers alone, and the others rest as they come.
    pub(super) fn call_one(&self) {
        let mut duty = self.duty.lock();
        if *duty == Duty::All {
            self.set(&mut duty, Duty::Vacant);
        }
    }

    /// From here on all threads answer; who did alone until now.
    pub(super) fn call_all(&self) -> Option<usize> {
        let mut duty = self.duty.lock();
        let before = *duty;
        if before != Duty::Over {
            self.set(&mut duty, Duty::All);
        }
        before.lead()
    }

    /// As [`Self::call_all`], and nobody is called alone again: a thread has ended.
    pub(super) fn close(&self) {
        self.set(&mut self.duty.lock(), Duty::Over);
    }

    /// Who answers alone.
    pub(super) fn lead(&self) -> Option<usize> {
        self.duty.lock().lead()
    }

    /// Whether thread `n` answers alone, as far as it is known without a lock.
    pub(super) fn is_lead(&self, n: usize) -> bool {
        self.hint.load(Ordering::Relaxed) == n
    }

    /// Does what only thread `n` may do while it answers alone: it does, until this is done.
    pub(super) fn as_lead(&self, n: usize, act: impl FnOnce()) {
        let duty = self.duty.lock();
        if *duty == Duty::Alone(n) {
            act();
        }
    }

    fn set(&self, duty: &mut Duty, to: Duty) {
        *duty = to;
        let hint = match to {
            Duty::All | Duty::Over => ALL,
            Duty::Vacant => VACANT,
            Duty::Alone(n) => n,
        };
        self.hint.store(hint, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Returns when thread `n` is to answer more.
    pub(super) fn rest(&self, n: usize) {
        let hint = self.hint.load(Ordering::Relaxed);
        if hint == ALL || hint == n {
            return;
        }
        let mut duty = self.duty.lock();
        loop {
            match *duty {
                Duty::Vacant => return self.set(&mut duty, Duty::Alone(n)),
                Duty::Alone(lead) if lead != n => self.changed.wait(&mut duty),
                _ => return,
            }
        }
    }
}

impl Note {
    /// A request of `client` begins, before which there were so many `changes` of clients.
    pub(super) fn begin(&self, client: u32, changes: u64) {
        self.client.store(client, Ordering::Relaxed);
        self.changes.store(changes, Ordering::Relaxed);
        self.busy.store(true, Ordering::Relaxed);
    }

    /// It is answered, as one of a `stream` or not.
    pub(super) fn end(&self, stream: bool) {
        self.stream.store(stream, Ordering::Relaxed);
        self.busy.store(false, Ordering::Relaxed);
    }

    /// The thread whose request was the last.
    pub(super) fn client(&self) -> u32 {
        self.client.load(Ordering::Relaxed)
    }

    /// How often it was another's than the one before.
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
    fn whoever_comes_first_answers_alone_until_all_are_called() {
        let crew = Crew::new(3, CpuSet::new());
        crew.rest(1);
        assert_eq!(crew.lead(), None);
        crew.call_one();
        assert_eq!(crew.lead(), None);
        crew.rest(1);
        crew.rest(1);
        crew.call_one();
        assert_eq!(crew.lead(), Some(1));
        assert!(crew.is_lead(1) && !crew.is_lead(2));
        let (mut first, mut second) = (false, false);
        crew.as_lead(1, || first = true);
        crew.as_lead(2, || second = true);
        assert!(first && !second);
        assert_eq!(crew.call_all(), Some(1));
        assert_eq!((crew.call_all(), crew.lead()), (None, None));
        crew.rest(2);
        crew.call_one();
        crew.rest(2);
        assert_eq!(crew.lead(), Some(2));
        crew.close();
        crew.rest(0);
        crew.call_one();
        crew.rest(1);
        assert_eq!(crew.lead(), None);
    }

    #[test]
    fn what_is_noted() {
        let crew = Crew::new(1, CpuSet::new());
        let note = crew.note(0);
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

    /// Threads that answer a few requests each and end, while one or all are called: each comes to
    /// its end.
    fn model() {
        let crew = Arc::new(Crew::new(THREADS, CpuSet::new()));
        let answer = |n: usize| {
            let crew = Arc::clone(&crew);
            thread::spawn(move || {
                for _ in 0..3 {
                    crew.rest(n);
                }
                crew.close();
            })
        };
        let threads: Vec<_> = (0..THREADS).map(answer).collect();
        for _ in 0..2 {
            crew.call_one();
            crew.call_all();
        }
        crew.call_one();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(crew.lead(), None);
    }

    /// Among those who have rested, all but one stay while one is called.
    fn one_alone() {
        let crew = Arc::new(Crew::new(THREADS, CpuSet::new()));
        let passed = Arc::new(AtomicU32::new(0));
        crew.call_one();
        let threads: Vec<_> = (0..THREADS)
            .map(|n| {
                let (crew, passed) = (Arc::clone(&crew), Arc::clone(&passed));
                thread::spawn(move || {
                    crew.rest(n);
                    passed.fetch_add(1, Ordering::SeqCst);
                    let before = passed.load(Ordering::SeqCst);
                    assert!(before == 1 || crew.lead().is_none());
                    if before == 1 && crew.lead() == Some(n) {
                        crew.call_all();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(passed.load(Ordering::SeqCst), THREADS as u32);
    }

    #[test]
    fn everybody_comes_to_its_end() {
        shuttle::check_random(model, 2000);
    }

    #[test]
    fn one_answers_alone() {
        shuttle::check_random(one_alone, 2000);
    }
}
