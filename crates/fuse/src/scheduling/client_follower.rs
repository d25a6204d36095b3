//! Keeps the leader on its client's core.
//!
//! The two share a core if the leader finds a request each time it asks for one: the client runs as
//! soon as it has its answer, before the leader does, and waits for the next answer when the leader
//! is back. A leader that sleeps between requests is on another core, or its client computes.
//!
//! The locator thread ([`super::client_locator`]) is kept on the leader's core. A leader in the
//! idle class lets the locator run first when it wakes it. So the report is there when the leader
//! runs again, and the client's core is not disturbed. Otherwise a later request finds the report.

use nextent_fuse_sys::{ThreadNo, sleeps_of_caller};
use rustix::thread::CpuSet;

use super::client_locator::{ClientLocation, ClientLocator};

/// Requests, each after a sleep, after which the leader asks for its client's core.
const ASK: u32 = 2;

/// The most requests between two questions of a leader that sleeps on its client's core.
const MOST_BETWEEN: u32 = 64;

/// What the leader knows of its client.
#[derive(Debug)]
pub(super) struct ClientFollower {
    /// How often the leader had slept when the last request began.
    sleeps: u64,
    /// Consecutive requests after a sleep.
    apart: u32,
    /// The value of `apart` that makes a question.
    ask: u32,
    /// Whether the locator was asked and no report has come.
    asked: bool,
    /// The core that the leader is kept on.
    core: Option<usize>,
}

impl ClientFollower {
    pub(super) fn new() -> Self {
        Self { sleeps: sleeps_of_caller(), apart: 0, ask: ASK, asked: false, core: None }
    }

    /// A request of `client` begins; the core that the calling thread moves to, if any.
    pub(super) fn step(&mut self, client: u32, locator: &ClientLocator) -> Option<usize> {
        self.decide(sleeps_of_caller(), locator.take_report(client), || locator.ask(client))
    }

    fn decide(
        &mut self,
        sleeps: u64,
        mut location: ClientLocation,
        ask: impl FnOnce() -> ClientLocation,
    ) -> Option<usize> {
        self.asked &= location == ClientLocation::Pending;
        let slept = std::mem::replace(&mut self.sleeps, sleeps) != sleeps;
        if !slept {
            // They share a core, whatever was reported.
            (self.apart, self.ask) = (0, ASK);
            return None;
        }
        self.apart += 1;
        if location == ClientLocation::Pending && self.apart >= self.ask && !self.asked {
            location = ask();
            (self.apart, self.asked) = (0, location == ClientLocation::Pending);
        }
        if location == ClientLocation::Pending {
            return None;
        }
        let moves = match location {
            ClientLocation::Core(there) if self.core != Some(there) => Some(there),
            _ => None,
        };
        // A client that computes between requests is not located at each of them.
        self.ask = if moves.is_some() { ASK } else { (2 * self.ask).min(MOST_BETWEEN) };
        moves
    }

    /// Keeps the calling thread and the locator on `core`, if that is in `anywhere`.
    pub(super) fn move_to(&mut self, core: usize, anywhere: &CpuSet, locator: &ClientLocator) {
        if core < CpuSet::MAX_CPU && anywhere.is_set(core) {
            let mut only = CpuSet::new();
            only.set(core);
            // Where the kernel refuses, the thread stays where it may be.
            let _ = ThreadNo::of_caller().run_on(&only);
            locator.keep_on(&only);
        }
        self.core = Some(core);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follower() -> ClientFollower {
        ClientFollower { sleeps: 0, apart: 0, ask: ASK, asked: false, core: None }
    }

    fn not_asked() -> ClientLocation {
        panic!("not asked")
    }

    #[test]
    fn a_leader_that_never_sleeps_does_not_ask() {
        let mut follower = follower();
        assert!((0..100).all(|_| follower.decide(0, ClientLocation::Pending, not_asked).is_none()));
        // Every second request after a sleep is not consecutive.
        assert!(
            (0..100).all(|n| follower.decide(n / 2, ClientLocation::Pending, not_asked).is_none())
        );
        // Nor does it move.
        assert_eq!(follower.decide(49, ClientLocation::Core(1), not_asked), None);
    }

    #[test]
    fn a_leader_that_sleeps_moves_to_its_client() {
        let mut follower = follower();
        assert!(
            (1..ASK)
                .all(|n| follower.decide(n.into(), ClientLocation::Pending, not_asked).is_none())
        );
        assert_eq!(
            follower.decide(ASK.into(), ClientLocation::Pending, || ClientLocation::Core(1)),
            Some(1)
        );
        follower.core = Some(1);
        let mut asked = Vec::new();
        for n in 1..200 {
            let there = || {
                asked.push(n);
                ClientLocation::Core(1)
            };
            assert_eq!(follower.decide((ASK + n).into(), ClientLocation::Pending, there), None);
        }
        // On that core already: the questions become rare.
        assert_eq!(asked, [2, 6, 14, 30, 62, 126, 190]);
        assert_eq!(follower.decide(1000, ClientLocation::Pending, not_asked), None);
        assert_eq!(follower.decide(1000, ClientLocation::Pending, not_asked), None);
        assert_eq!(follower.decide(1001, ClientLocation::Pending, not_asked), None);
        assert_eq!(
            follower.decide(1002, ClientLocation::Pending, || ClientLocation::Core(0)),
            Some(0)
        );
    }

    #[test]
    fn a_late_report_is_used() {
        let (mut follower, mut sleeps) = (follower(), 0);
        let mut step = |seen| {
            let mut asked = false;
            sleeps += 1;
            let ask = || {
                asked = true;
                ClientLocation::Pending
            };
            (follower.decide(sleeps, seen, ask), asked)
        };
        assert!((1..ASK).all(|_| step(ClientLocation::Pending) == (None, false)));
        assert_eq!(step(ClientLocation::Pending), (None, true));
        assert!((0..100).all(|_| step(ClientLocation::Pending) == (None, false)));
        assert_eq!(step(ClientLocation::Core(1)), (Some(1), false));
        assert_eq!(step(ClientLocation::Pending), (None, true));
        // Of a client that is gone.
        assert_eq!(step(ClientLocation::Unknown), (None, false));
        assert!((2..2 * ASK).all(|_| step(ClientLocation::Pending) == (None, false)));
        assert_eq!(step(ClientLocation::Pending), (None, true));
    }
}
