//! Where who answers alone runs: on its client's core.
//!
//! The two share a core if the lead has a request each time it looks for one: the client runs as
//! soon as it has its answer, before the lead does, and waits for the next when the lead is back. A
//! lead that sleeps between requests is elsewhere, or has a client that computes. It has the scout
//! look ([`super::scout`]) and goes when a later request finds a report.

use nextent_ring::{ThreadNo, sleeps_of_caller};
use rustix::thread::CpuSet;

use super::scout::{Scout, Sight};

/// Requests, each after a sleep, after which the lead asks where its client is.
const ASK: u32 = 2;

/// The most requests between two questions of a lead that sleeps where its client is.
const SELDOM: u32 = 64;

/// What a lead knows of its client.
#[derive(Debug)]
pub(super) struct Follow {
    /// How often the lead had slept when the last request began.
    sleeps: u64,
    /// Requests after a sleep, one after another.
    apart: u32,
    /// So many make a question.
    ask: u32,
    /// Whether the scout has been asked and no report has come.
    asked: bool,
    /// Where the lead is kept.
    core: Option<usize>,
}

impl Follow {
    pub(super) fn new() -> Self {
        Self { sleeps: sleeps_of_caller(), apart: 0, ask: ASK, asked: false, core: None }
    }

    /// A request of `client` begins; where the calling thread is to run from now on, if elsewhere.
    pub(super) fn step(&mut self, client: u32, scout: &Scout) -> Option<usize> {
        self.look(sleeps_of_caller(), scout.take(client), || scout.ask(client))
    }

    fn look(&mut self, sleeps: u64, seen: Sight, ask: impl FnOnce()) -> Option<usize> {
        let moves = match seen {
            Sight::On(core) => Some(core).filter(|there| self.core != Some(*there)),
            Sight::Nowhere | Sight::NotYet => None,
        };
        if seen != Sight::NotYet {
            // A client that computes between requests is not looked for at each of them.
            self.ask = if moves.is_some() { ASK } else { (2 * self.ask).min(SELDOM) };
            self.asked = false;
        }
        let slept = std::mem::replace(&mut self.sleeps, sleeps) != sleeps;
        if !slept {
            // They are together, whatever was seen.
            (self.apart, self.ask) = (0, ASK);
            return None;
        }
        self.apart += 1;
        if self.apart >= self.ask && !self.asked {
            (self.apart, self.asked) = (0, true);
            ask();
        }
        moves
    }

    /// Keeps the calling thread on `core`, one of those it may be on.
    pub(super) fn go(&mut self, core: usize, anywhere: &CpuSet) {
        if core < CpuSet::MAX_CPU && anywhere.is_set(core) {
            let mut only = CpuSet::new();
            only.set(core);
            // Where the kernel refuses, it stays where it may be.
            let _ = ThreadNo::of_caller().run_on(&only);
        }
        self.core = Some(core);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow() -> Follow {
        Follow { sleeps: 0, apart: 0, ask: ASK, asked: false, core: None }
    }

    fn nobody() {
        panic!("not asked")
    }

    #[test]
    fn who_never_sleeps_does_not_ask() {
        let mut follow = follow();
        assert!((0..100).all(|_| follow.look(0, Sight::NotYet, nobody).is_none()));
        // Now and then is not apart.
        assert!((0..100).all(|n| follow.look(n / 2, Sight::NotYet, nobody).is_none()));
        // Nor does it go away.
        assert_eq!(follow.look(49, Sight::On(1), nobody), None);
    }

    #[test]
    fn who_sleeps_goes_where_its_client_is() {
        let (mut follow, mut sleeps) = (follow(), 0);
        let mut step = |follow: &mut Follow, seen| {
            let mut asked = false;
            sleeps += 1;
            (follow.look(sleeps, seen, || asked = true), asked)
        };
        assert!((1..ASK).all(|_| step(&mut follow, Sight::NotYet) == (None, false)));
        assert_eq!(step(&mut follow, Sight::NotYet), (None, true));
        // Once, however long it takes.
        assert!((0..100).all(|_| step(&mut follow, Sight::NotYet) == (None, false)));
        assert_eq!(step(&mut follow, Sight::On(1)), (Some(1), true));
        follow.core = Some(1);
        let mut asked = Vec::new();
        let mut seen = Sight::On(1);
        for n in 1..200 {
            let (moves, asks) = step(&mut follow, seen);
            assert_eq!(moves, None);
            seen = if asks { Sight::On(1) } else { Sight::NotYet };
            asked.extend(asks.then_some(n));
        }
        // There already: asked ever more seldom.
        assert_eq!(asked, [4, 12, 28, 60, 124, 188]);
        assert_eq!(step(&mut follow, Sight::On(0)), (Some(0), true));
        assert_eq!(step(&mut follow, Sight::Nowhere), (None, false));
    }
}
