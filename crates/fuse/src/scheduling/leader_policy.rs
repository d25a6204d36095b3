//! When one thread of a group answers all requests: the watchdog's view.
//!
//! A group has one client while, for a tick, all requests were one thread's. The leader is in the
//! idle class, so that the client stays on its core. Streams are answered by all threads: a process
//! that reads ahead goes on with what it has while more is copied on another core.

use nextent_fuse_sys::Class;

use super::core_policy::Debounced;
use super::worker_group::WorkerGroup;
use super::worker_state::WorkerState;

/// What the watchdog knows of a group.
pub(super) struct LeaderPolicy {
    /// Answered requests and changes of client of each thread, at the last sample.
    before: Vec<(u64, u64)>,
    several_clients: Debounced,
    /// The leader, as far as it is known here.
    leader: Option<usize>,
}

impl LeaderPolicy {
    pub(super) fn new(threads: usize) -> Self {
        Self { before: vec![(0, 0); threads], several_clients: Debounced::default(), leader: None }
    }

    /// Takes a sample; whether all threads are to answer: there are several clients, or a stream,
    /// or the leader is busy with one request all the time and `waits` says that another request
    /// may wait.
    pub(super) fn needs_all_workers(
        &mut self,
        group: &WorkerGroup,
        workers: &[WorkerState],
        waits: impl FnOnce() -> bool,
    ) -> bool {
        let (mut client, mut several, mut changed, mut stream) = (None, false, 0, false);
        let mut stuck = false;
        for (n, (note, worker)) in group.notes().zip(workers).enumerate() {
            let now = (worker.served(), note.changes());
            let before = std::mem::replace(&mut self.before[n], now);
            if now.0 == before.0 {
                stuck |= self.leader == Some(n) && note.is_busy();
                continue;
            }
            let this = note.client();
            // Clients of other containers have no number, so they may be several.
            several |= this == 0 || client.replace(this).is_some_and(|other| other != this);
            changed += now.1.wrapping_sub(before.1);
            stream |= note.is_stream();
        }
        // One client may follow another within a tick.
        self.several_clients.update(several || changed > 1 || stream) || (stuck && waits())
    }

    /// Applies the class that the group's threads are to have.
    pub(super) fn set_class(&mut self, class: Class, group: &WorkerGroup, workers: &[WorkerState]) {
        match class {
            Class::Idle => group.elect_leader(),
            Class::Usual => {
                // The leader follows no client after this.
                if let Some(leader) = group.release_all() {
                    workers[leader].set_class(Class::Usual);
                    workers[leader].keep_on(group.anywhere());
                }
                self.leader = None;
            }
        }
    }

    /// Moves a new leader to the idle class.
    pub(super) fn adopt_leader(&mut self, group: &WorkerGroup, workers: &[WorkerState]) {
        if self.leader.is_none() {
            self.leader = group.leader();
            self.leader.iter().for_each(|leader| workers[*leader].set_class(Class::Idle));
        }
    }
}

#[cfg(all(test, not(feature = "model-shuttle")))]
mod tests {
    use super::*;
    use rustix::thread::CpuSet;

    /// A group of two threads, and the requests that they have answered.
    struct TestGroup {
        group: WorkerGroup,
        workers: Vec<WorkerState>,
        policy: LeaderPolicy,
        done: [(u64, u64); 2],
    }

    impl TestGroup {
        fn new() -> Self {
            let workers = vec![WorkerState::new(), WorkerState::new()];
            let (group, policy) = (WorkerGroup::new(2, CpuSet::new()), LeaderPolicy::new(2));
            Self { group, workers, policy, done: [(0, 0); 2] }
        }

        /// Thread `n` answers a request of each of `clients`, of a stream or not.
        fn answer(&mut self, n: usize, clients: &[u32], stream: bool) {
            let note = self.group.note(n);
            for client in clients {
                let (served, changes) = &mut self.done[n];
                *served += 1;
                *changes += u64::from(note.client() != *client);
                note.begin(*client, *changes);
                note.end(stream);
                self.workers[n].set_served(*served);
            }
        }

        /// A sample, while no request waits for the leader.
        fn sample(&mut self) -> bool {
            self.policy.needs_all_workers(&self.group, &self.workers, || false)
        }

        /// Whether `act` before each sample soon needs all threads; without it, one is enough
        /// again.
        fn needs_all(mut self, act: impl Fn(&mut Self)) -> bool {
            let found = (0..20).any(|_| {
                act(&mut self);
                self.sample()
            });
            assert!((0..20).any(|_| !self.sample()));
            found
        }
    }

    #[test]
    fn several_clients_and_streams_need_all_threads() {
        assert!(!TestGroup::new().needs_all(|_| {}));
        assert!(!TestGroup::new().needs_all(|test| test.answer(0, &[7, 7], false)));
        // Whichever thread answers.
        assert!(!TestGroup::new().needs_all(|test| {
            test.answer(0, &[7], false);
            test.answer(1, &[7, 7], false);
        }));
        assert!(TestGroup::new().needs_all(|test| test.answer(0, &[7, 8, 7], false)));
        assert!(TestGroup::new().needs_all(|test| {
            test.answer(0, &[7], false);
            test.answer(1, &[8], false);
        }));
        assert!(!TestGroup::new().needs_all(|test| test.answer(0, &[7], false)));
        assert!(TestGroup::new().needs_all(|test| test.answer(0, &[7], true)));
        // An unknown client.
        assert!(TestGroup::new().needs_all(|test| test.answer(0, &[0], false)));
        // One process after another, each for a few samples.
        let mut test = TestGroup::new();
        for client in 1..100 {
            for _ in 0..3 {
                test.answer(0, &[client], false);
                assert!(!test.sample());
            }
        }
    }

    #[test]
    fn a_leader_busy_for_a_whole_sample_keeps_no_request_waiting() {
        let mut test = TestGroup::new();
        test.group.elect_leader();
        test.group.wait_until_needed(1);
        test.policy.adopt_leader(&test.group, &test.workers);
        test.answer(1, &[7], false);
        assert!(!test.sample());
        test.group.note(1).begin(7, 1);
        assert!(test.policy.needs_all_workers(&test.group, &test.workers, || true));
        assert!(!test.sample());
        // The leader is idle.
        test.group.note(1).end(false);
        assert!(!test.policy.needs_all_workers(&test.group, &test.workers, || panic!("not asked")));
        // Where all threads answer, no request waits for one.
        test.policy.set_class(Class::Usual, &test.group, &test.workers);
        test.group.note(1).begin(7, 1);
        assert!(!test.policy.needs_all_workers(&test.group, &test.workers, || panic!("not asked")));
    }
}
