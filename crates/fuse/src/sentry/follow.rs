//! Where who answers alone runs: on its client's core.
//!
//! The two share a core if the lead has a request each time it looks for one: the client runs as
//! soon as it has its answer, before the lead does, and waits for the next when the lead is back. A
//! lead that sleeps between requests is elsewhere, or has a client that computes.
//!
//! It has the scout look ([`super::scout`]), which is kept where the lead is: a lead that counts as
//! idle lets the scout before it when it wakes it, so the report is there when it runs again, and
//! the client's core has nothing to do with it. Where that is not so, a later request finds it.

use nextent_fuse_sys::{ThreadNo, sleeps_of_caller};
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

    fn look(&mut self, sleeps: u64, mut seen: Sight, ask: impl FnOnce() -> Sight) -> Option<usize> {
        self.asked &= seen == Sight::NotYet;
        let slept = std::mem::replace(&mut self.sleeps, sleeps) != sleeps;
        if !slept {
            // They are together, whatever was seen.
            (self.apart, self.ask) = (0, ASK);
            return None;
        }
        self.apart += 1;
        if seen == Sight::NotYet && self.apart >= self.ask && !self.asked {
            seen = ask();
            (self.apart, self.asked) = (0, seen == Sight::NotYet);
        }
        if seen == Sight::NotYet {
            return None;
        }
        let moves = match seen {
            Sight::On(there) if self.core != Some(there) => Some(there),
            _ => None,
        };
        // A client that computes between requests is not looked for at each of them.
        self.ask = if moves.is_some() { ASK } else { (2 * self.ask).min(SELDOM) };
        moves
    }

    /// Keeps the calling thread and the scout on `core`, one of those they may be on.
    pub(super) fn go(&mut self, core: usize, anywhere: &CpuSet, scout: &Scout) {
        if core < CpuSet::MAX_CPU && anywhere.is_set(core) {
            let mut only = CpuSet::new();
            only.set(core);
            // Where the kernel refuses, it stays where it may be.
            let _ = ThreadNo::of_caller().run_on(&only);
            scout.keep_on(&only);
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

    fn nobody() -> Sight {
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
        let mut follow = follow();
        assert!((1..ASK).all(|n| follow.look(n.into(), Sight::NotYet, nobody).is_none()));
        assert_eq!(follow.look(ASK.into(), Sight::NotYet, || Sight::On(1)), Some(1));
        follow.core = Some(1);
        let mut asked = Vec::new();
        for n in 1..200 {
            let there = || {
                asked.push(n);
                Sight::On(1)
            };
            assert_eq!(follow.look((ASK + n).into(), Sight::NotYet, there), None);
        }
        // There already: asked ever more seldom.
        assert_eq!(asked, [2, 6, 14, 30, 62, 126, 190]);
        assert_eq!(follow.look(1000, Sight::NotYet, nobody), None);
        assert_eq!(follow.look(1000, Sight::NotYet, nobody), None);
        assert_eq!(follow.look(1001, Sight::NotYet, nobody), None);
        assert_eq!(follow.look(1002, Sight::NotYet, || Sight::On(0)), Some(0));
    }

    #[test]
    fn a_late_report_is_waited_for_and_heeded() {
        let (mut follow, mut sleeps) = (follow(), 0);
        let mut step = |seen| {
            let mut asked = false;
            sleeps += 1;
            let ask = || {
                asked = true;
                Sight::NotYet
            };
            (follow.look(sleeps, seen, ask), asked)
        };
        assert!((1..ASK).all(|_| step(Sight::NotYet) == (None, false)));
        assert_eq!(step(Sight::NotYet), (None, true));
        assert!((0..100).all(|_| step(Sight::NotYet) == (None, false)));
        assert_eq!(step(Sight::On(1)), (Some(1), false));
        assert_eq!(step(Sight::NotYet), (None, true));
        // Of a client that is gone.
        assert_eq!(step(Sight::Nowhere), (None, false));
        assert!((2..2 * ASK).all(|_| step(Sight::NotYet) == (None, false)));
        assert_eq!(step(Sight::NotYet), (None, true));
    }
}
