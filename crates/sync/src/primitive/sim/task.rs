//! A simulated thread on its core: its clocks, and what it waits for.
//!
//! A core goes on with code while a line is on its way to it, as far as its reorder buffer reaches,
//! and asks for the next line meanwhile: what it does now was begun when the core was done with the
//! code that lies a buffer before, so all that it has waited for since then has passed meanwhile.
//! Where lines migrate it is ahead by as much code while it waits for nothing, from some time after
//! it began `anew` on, so that a line is asked for by that much before it is needed. A
//! read-modify-write is waited for by all uses that come after it, where lines migrate until a way
//! before it is done, and not by the code. A store asks for its line when all before it is done and
//! not before, and only who changes a word by a read-modify-write waits for that.
//! What follows from a thing that is waited for is not begun before, nor is the next use of the
//! same word; what comes after that is.

use super::between::Place;
use super::lines::Use;
use crate::LockClass;
use crate::rank::Site;
use std::any::Any;
use std::collections::VecDeque;

/// Bytes within which words are taken to be used by code in one place.
const NEIGHBOURS: usize = 64;
/// Waits that a core has behind it at most while it begins more.
const WAITS: usize = 64;

pub(super) type Coroutine = generator::LocalGenerator<'static, (), ()>;

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing, or its turn.
    Nothing,
    /// A lock, at an address.
    Lock(usize),
    /// A condition.
    Condition,
    /// The end of a thread.
    End(usize),
}

/// A simulated thread.
pub(super) struct Task {
    pub(super) clock: u64,
    /// How much code it has done, and how much it had when it waited of late, and for how long.
    code_done: u64,
    waits: VecDeque<(u64, u64)>,
    /// When it last began anew, with nothing begun of what comes after.
    anew: u64,
    /// When the last of its stores is done that did not wait for their line.
    pub(super) stores: u64,
    /// When its last read-modify-write was done.
    pub(super) changed: u64,
    /// What it has lost to the coming of lines.
    pub(super) lost: u64,
    /// What makes its steps uneven.
    pub(super) uneven: u64,
    pub(super) core: usize,
    /// Whether its next operation follows at once, as the code has said.
    pub(super) at_once: bool,
    /// Whether it has told of all code before its next operation.
    pub(super) told_all: bool,
    /// Whether its use is beside the last, and so not begun before that is done; nor is plain data
    /// that is used right after, as what a lock guards, which is not had before the lock is.
    pub(super) beside: bool,
    /// When the line was there that it used last, but for stores.
    pub(super) there: u64,
    /// Where its last use was, and whether the next one lets a lock go.
    pub(super) place: Place,
    pub(super) leaves: bool,
    /// Whether it looks at a lock that somebody holds.
    pub(super) looks: bool,
    /// What it used last.
    used: usize,
    /// What it loaded last, and before that elsewhere.
    loaded: [usize; 2],
    pub(super) slot: u16,
    /// Counts what it waited for: a time limit of an older wait is void.
    pub(super) turn: u64,
    /// Whether the last wait ended by time.
    pub(super) timed_out: bool,
    /// Whether the lock that it waited for last was handed over.
    pub(super) handed: bool,
    pub(super) done: bool,
    pub(super) code: Option<Coroutine>,
    /// What its coroutine is stopped by.
    pub(super) handle: *mut (),
    pub(super) joiners: Vec<usize>,
    pub(super) class: Option<&'static LockClass>,
    pub(super) site: Option<Site>,
    pub(super) locals: Vec<(usize, Box<dyn Any>)>,
    pub(super) name: Option<String>,
    pub(super) wait: Wait,
}

impl Task {
    pub(super) fn new(
        clock: u64,
        core: usize,
        slot: u16,
        number: usize,
        code: Option<Coroutine>,
    ) -> Self {
        Self {
            clock,
            code_done: 0,
            waits: VecDeque::new(),
            anew: clock,
            stores: 0,
            changed: 0,
            lost: 0,
            uneven: 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(number as u64 + 1),
            core,
            at_once: false,
            told_all: false,
            beside: false,
            there: 0,
            place: 0,
            leaves: false,
            looks: false,
            used: usize::MAX,
            loaded: [usize::MAX; 2],
            slot,
            turn: 0,
            timed_out: false,
            handed: false,
            done: false,
            code,
            handle: std::ptr::null_mut(),
            joiners: Vec::new(),
            class: None,
            site: None,
            locals: Vec::new(),
            name: None,
            wait: Wait::Nothing,
        }
    }

    /// It computes for so long.
    pub(super) fn pass(&mut self, time: u64) {
        self.clock += time;
        self.code_done += time;
    }

    /// When its next use is begun, if what it changed last is waited for until `changed`, by a core
    /// that has begun so much code ahead while it waits for nothing, and has room for `window`.
    pub(super) fn begins(&self, changed: u64, ahead: u64, window: u64) -> u64 {
        if self.beside {
            return self.clock;
        }
        let within = |(at, _): &&(u64, u64)| at + window > self.code_done;
        let waited: u64 = self.waits.iter().rev().take_while(within).map(|wait| wait.1).sum();
        let begun = self.clock.saturating_sub(ahead + waited).max(self.anew);
        begun.max(changed).min(self.clock)
    }

    /// What it used last says where it goes on: nothing of that is begun before.
    pub(super) fn leads_on(&mut self) {
        self.anew = self.anew.max(self.there);
    }

    /// It has waited since then, with what fits behind begun.
    pub(super) fn has_waited(&mut self, since: u64) {
        if self.clock > since {
            self.waits.push_back((self.code_done, self.clock - since));
        }
        if self.waits.len() > WAITS {
            self.waits.pop_front();
        }
    }

    /// It goes on at `clock` with nothing begun.
    pub(super) fn begin_anew(&mut self, clock: u64) {
        (self.clock, self.anew) = (clock, clock);
        self.waits.clear();
    }

    /// Whether a word lies beside the one that was used last, or is loaded in a row with one of
    /// two: who compares two tables goes through both; or the code has said that its use follows
    /// at once.
    pub(super) fn is_beside(&self, address: usize, which: Use) -> bool {
        let near = |other: &usize| other.abs_diff(address) < NEIGHBOURS;
        self.at_once || near(&self.used) || which == Use::Load && self.loaded.iter().any(near)
    }

    /// The place of its next use; the one of its last.
    pub(super) fn go_on(&mut self, which: Use) -> (Place, Place) {
        let site = self.site.map_or(0, |site| std::ptr::from_ref(site).addr());
        let kind = match which {
            _ if std::mem::take(&mut self.leaves) => 3,
            Use::Load | Use::Take => 0,
            Use::Store => 1,
            Use::Change => 2,
        };
        // A place in the sources begins at a multiple of its alignment.
        let place = site | kind;
        (std::mem::replace(&mut self.place, place), place)
    }

    pub(super) fn note_use(&mut self, address: usize, which: Use) {
        (self.used, self.at_once) = (address, false);
        if which == Use::Load {
            let again = self.loaded[0].abs_diff(address) < NEIGHBOURS;
            self.loaded = [address, self.loaded[usize::from(again)]];
        }
    }

    /// The code before an operation, which is not the same each time: from half of the mean to
    /// one and a half. Cores that always took the same steps would fall into step with each other
    /// and never meet, or always.
    pub(super) fn uneven(&mut self, step: u64) -> u64 {
        step / 2 + self.any(step)
    }

    /// About so long: from three quarters to five quarters of it.
    pub(super) fn about(&mut self, mean: u64) -> u64 {
        mean / 2 + self.uneven(mean / 2)
    }

    /// Any time below `limit`.
    pub(super) fn any(&mut self, limit: u64) -> u64 {
        self.uneven ^= self.uneven << 13;
        self.uneven ^= self.uneven >> 7;
        self.uneven ^= self.uneven << 17;
        (limit * (self.uneven >> 54)) >> 10
    }

    /// It waited until `clock`, and began nothing meanwhile.
    pub(super) fn be_at(&mut self, clock: u64) {
        if clock > self.clock {
            self.begin_anew(clock);
        }
    }

    /// Whether it still waits for what its turn `turn` was.
    pub(super) fn waits_for(&self, turn: u64) -> bool {
        self.turn == turn && !self.done
    }

    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// The lock that it waits for, or 0.
    pub(super) fn address(&self) -> usize {
        if let Wait::Lock(address) = self.wait { address } else { 0 }
    }

    pub(super) fn waiting(&self) -> String {
        let class = self.class.map_or("an atomic", |class| class.name);
        let site = self.site.map_or_else(String::new, |site| format!(" at {site}"));
        match self.wait {
            Wait::Nothing => format!("was at {class}{site}"),
            Wait::Lock(_) => format!("waits for {class}{site}"),
            Wait::Condition => format!("waits for a condition under {class}, taken{site}"),
            Wait::End(task) => format!("waits for the end of thread {task}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        Task::new(0, 0, 0, 0, None)
    }

    #[test]
    fn neighbours_and_tables_side_by_side_are_one_place() {
        let mut task = task();
        assert!(!task.is_beside(1000, Use::Load));
        task.note_use(1000, Use::Change);
        assert!(task.is_beside(1063, Use::Store) && task.is_beside(937, Use::Load));
        assert!(!task.is_beside(1064, Use::Load));
        // Two tables, each in a row.
        task.note_use(5000, Use::Load);
        task.note_use(9000, Use::Load);
        assert!(task.is_beside(5008, Use::Load) && !task.is_beside(5008, Use::Store));
        task.note_use(5008, Use::Load);
        task.note_use(5016, Use::Load);
        assert!(task.is_beside(9008, Use::Load));
        // A third takes the place of the one that was left longest ago.
        task.note_use(20_000, Use::Load);
        assert!(task.is_beside(5024, Use::Load) && !task.is_beside(9008, Use::Load));
        // Once, and for whatever it is.
        task.at_once = true;
        assert!(task.is_beside(40_000, Use::Change));
        task.note_use(40_000, Use::Change);
        assert!(!task.is_beside(60_000, Use::Change));
    }

    #[test]
    fn a_core_begins_what_there_is_room_for() {
        let mut task = task();
        task.be_at(100);
        // It waits for 30 with room for 20.
        task.clock = 130;
        task.has_waited(100);
        task.pass(15);
        assert_eq!((task.clock, task.begins(0, 0, 20)), (145, 115));
        // Waits for more: what comes now was begun before both.
        task.clock = 155;
        task.has_waited(145);
        assert_eq!(task.begins(0, 0, 20), 115);
        // The first is a buffer behind, however soon after it the second was.
        task.pass(5);
        assert_eq!((task.clock, task.begins(0, 0, 20)), (160, 150));
        task.pass(15);
        assert_eq!(task.begins(0, 0, 20), 175);
        task.be_at(150);
        assert_eq!(task.clock, 175);
        // Of many waits in no code at all it knows the last.
        for _ in 0..2 * WAITS {
            task.clock += 1;
            task.has_waited(task.clock - 1);
        }
        assert_eq!(task.begins(0, 0, 20), task.clock - WAITS as u64);
    }

    #[test]
    fn a_core_is_ahead_by_what_it_has_begun_since_it_began_anew() {
        let mut task = task();
        task.begin_anew(100);
        task.pass(5);
        assert_eq!((task.begins(0, 0, 18), task.begins(0, 18, 18)), (105, 100));
        task.pass(40);
        let begins = |changed| task.begins(changed, 18, 18);
        assert_eq!((begins(0), begins(130), begins(150)), (127, 130, 145));
        // Who has waited for a line has begun what fits in before and meanwhile.
        task.clock = 185;
        task.has_waited(145);
        assert_eq!(task.begins(0, 18, 18), 127);
        // But not what only the line says where it is.
        task.there = 180;
        task.leads_on();
        assert_eq!(task.begins(0, 18, 18), 180);
        task.beside = true;
        assert_eq!(task.begins(0, 18, 18), 185);
    }
}
