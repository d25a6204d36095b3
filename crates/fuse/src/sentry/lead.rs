//! When a thread of a crew answers alone: the sentry's view.
//!
//! A crew has one client while, for a tick, all requests were one thread's. Its lead is of the
//! lowest class, so that the client stays where it is. Streams are moved by all threads:
//! who reads ahead goes on with what it has while more is copied on another core.

use nextent_fuse_sys::Class;

use super::crew::Crew;
use super::seat::Seat;
use super::watch::Lasting;

/// What the sentry knows of a crew.
pub(super) struct Lead {
    /// Requests that a thread had answered, and clients it had changed, at the last look.
    before: Vec<(u64, u64)>,
    company: Lasting,
    /// Who answers alone, by what is known here.
    seat: Option<usize>,
}

impl Lead {
    pub(super) fn new(threads: usize) -> Self {
        Self { before: vec![(0, 0); threads], company: Lasting::default(), seat: None }
    }

    /// One look: whether all threads are to answer, for there are several clients, or a stream, or
    /// the one that answers alone is busy with one request all the time; `waits` says whether
    /// another may wait for it.
    pub(super) fn has_company(
        &mut self,
        crew: &Crew,
        seats: &[Seat],
        waits: impl FnOnce() -> bool,
    ) -> bool {
        let (mut client, mut several, mut changed, mut stream) = (None, false, 0, false);
        let mut stuck = false;
        for (n, (note, seat)) in crew.notes().zip(seats).enumerate() {
            let now = (seat.served(), note.changes());
            let before = std::mem::replace(&mut self.before[n], now);
            if now.0 == before.0 {
                stuck |= self.seat == Some(n) && note.is_busy();
                continue;
            }
            let this = note.client();
            // Nobody may be several who cannot be told apart: of another container.
            several |= this == 0 || client.replace(this).is_some_and(|other| other != this);
            changed += now.1.wrapping_sub(before.1);
            stream |= note.is_stream();
        }
        // One client may follow another within a tick.
        self.company.look(several || changed > 1 || stream) || (stuck && waits())
    }

    /// What follows from the class that the crew's threads are to have.
    pub(super) fn set_class(&mut self, class: Class, crew: &Crew, seats: &[Seat]) {
        match class {
            Class::Idle => crew.call_one(),
            Class::Usual => {
                // The lead follows nobody after this.
                if let Some(lead) = crew.call_all() {
                    seats[lead].set_class(Class::Usual);
                    seats[lead].keep_on(crew.anywhere());
                }
                self.seat = None;
            }
        }
    }

    /// Has whoever has become the lead count as idle.
    pub(super) fn find(&mut self, crew: &Crew, seats: &[Seat]) {
        if self.seat.is_none() {
            self.seat = crew.lead();
            self.seat.iter().for_each(|lead| seats[*lead].set_class(Class::Idle));
        }
    }
}

#[cfg(all(test, not(feature = "model-shuttle")))]
mod tests {
    use super::*;
    use rustix::thread::CpuSet;

    /// A crew of two threads, and requests that they have answered.
    struct Bench {
        crew: Crew,
        seats: Vec<Seat>,
        lead: Lead,
        done: [(u64, u64); 2],
    }

    impl Bench {
        fn new() -> Self {
            let seats = vec![Seat::new(), Seat::new()];
            let (crew, lead) = (Crew::new(2, CpuSet::new()), Lead::new(2));
            Self { crew, seats, lead, done: [(0, 0); 2] }
        }

        /// Thread `n` answers a request of each of `clients`, of a stream or not.
        fn answer(&mut self, n: usize, clients: &[u32], stream: bool) {
            let note = self.crew.note(n);
            for client in clients {
                let (served, changes) = &mut self.done[n];
                *served += 1;
                *changes += u64::from(note.client() != *client);
                note.begin(*client, *changes);
                note.end(stream);
                self.seats[n].note(*served);
            }
        }

        /// A look, while nobody waits for who answers alone.
        fn look(&mut self) -> bool {
            self.lead.has_company(&self.crew, &self.seats, || false)
        }

        /// Whether `act` before each look makes company before long, and nothing alone again.
        fn finds_company(mut self, act: impl Fn(&mut Self)) -> bool {
            let found = (0..20).any(|_| {
                act(&mut self);
                self.look()
            });
            assert!((0..20).any(|_| !self.look()));
            found
        }
    }

    #[test]
    fn clients_and_streams_are_seen() {
        assert!(!Bench::new().finds_company(|_| {}));
        assert!(!Bench::new().finds_company(|bench| bench.answer(0, &[7, 7], false)));
        // Whoever answers.
        assert!(!Bench::new().finds_company(|bench| {
            bench.answer(0, &[7], false);
            bench.answer(1, &[7, 7], false);
        }));
        assert!(Bench::new().finds_company(|bench| bench.answer(0, &[7, 8, 7], false)));
        assert!(Bench::new().finds_company(|bench| {
            bench.answer(0, &[7], false);
            bench.answer(1, &[8], false);
        }));
        assert!(!Bench::new().finds_company(|bench| bench.answer(0, &[7], false)));
        assert!(Bench::new().finds_company(|bench| bench.answer(0, &[7], true)));
        // Nobody knows whose.
        assert!(Bench::new().finds_company(|bench| bench.answer(0, &[0], false)));
        // One process after another, each for a few looks.
        let mut bench = Bench::new();
        for client in 1..100 {
            for _ in 0..3 {
                bench.answer(0, &[client], false);
                assert!(!bench.look());
            }
        }
    }

    #[test]
    fn who_is_busy_for_a_whole_look_keeps_nobody_waiting() {
        let mut bench = Bench::new();
        bench.crew.call_one();
        bench.crew.rest(1);
        bench.lead.find(&bench.crew, &bench.seats);
        bench.answer(1, &[7], false);
        assert!(!bench.look());
        bench.crew.note(1).begin(7, 1);
        assert!(bench.lead.has_company(&bench.crew, &bench.seats, || true));
        assert!(!bench.look());
        // Nobody asks.
        bench.crew.note(1).end(false);
        assert!(!bench.lead.has_company(&bench.crew, &bench.seats, || panic!("not asked")));
        // Where all answer nobody is waited for.
        bench.lead.set_class(Class::Usual, &bench.crew, &bench.seats);
        bench.crew.note(1).begin(7, 1);
        assert!(!bench.lead.has_company(&bench.crew, &bench.seats, || panic!("not asked")));
    }
}
