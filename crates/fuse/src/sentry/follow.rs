//! Where who answers alone runs: on its client's core.
//!
//! The two share a core if the lead has a request each time it looks for one: the client runs as
//! soon as it has its answer, before the lead does, and waits for the next when the lead is back. A
//! lead that sleeps between requests is elsewhere, or has a client that computes.

use nextent_ring::{ThreadNo, sleeps_of_caller};
use rustix::thread::CpuSet;

use super::seat::core_of;

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
    /// Where the lead is kept.
    core: Option<usize>,
}

impl Follow {
    pub(super) fn new() -> Self {
        Self { sleeps: sleeps_of_caller(), apart: 0, ask: ASK, core: None }
    }

    /// A request of `client` begins; where the calling thread is to run from now on, if elsewhere.
    pub(super) fn step(&mut self, client: u32) -> Option<usize> {
        self.look(sleeps_of_caller(), || core_of(client))
    }

    fn look(&mut self, sleeps: u64, there: impl FnOnce() -> Option<usize>) -> Option<usize> {
        let slept = std::mem::replace(&mut self.sleeps, sleeps) != sleeps;
        if !slept {
            (self.apart, self.ask) = (0, ASK);
            return None;
        }
        self.apart += 1;
        if self.apart < self.ask {
            return None;
        }
        let there = there();
        let moves = there.is_some() && there != self.core;
        // A client that computes between requests is not looked for at each of them.
        self.ask = if moves { ASK } else { (2 * self.ask).min(SELDOM) };
        self.apart = 0;
        if moves { there } else { None }
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
        Follow { sleeps: 0, apart: 0, ask: ASK, core: None }
    }

    fn nobody() -> Option<usize> {
        panic!("not asked")
    }

    #[test]
    fn who_never_sleeps_does_not_ask() {
        let mut follow = follow();
        assert!((0..100).all(|_| follow.look(0, nobody).is_none()));
        // Now and then is not apart.
        assert!((0..100).all(|n| follow.look(n / 2, nobody).is_none()));
    }

    #[test]
    fn who_sleeps_goes_where_its_client_is() {
        let mut follow = follow();
        assert!((1..ASK).all(|n| follow.look(n.into(), nobody).is_none()));
        assert_eq!(follow.look(ASK.into(), || Some(1)), Some(1));
        follow.core = Some(1);
        let mut asked = Vec::new();
        for n in 1..200 {
            let there = || {
                asked.push(n);
                Some(1)
            };
            assert_eq!(follow.look((ASK + n).into(), there), None);
        }
        // There already: asked ever more seldom.
        assert_eq!(asked, [2, 6, 14, 30, 62, 126, 190]);
        assert_eq!(follow.look(1000, nobody), None);
        assert_eq!(follow.look(1000, nobody), None);
        assert_eq!(follow.look(1001, nobody), None);
        assert_eq!(follow.look(1002, || Some(0)), Some(0));
    }
}
