//! Turns by chance instead of by time: the scheduler as a model checker.
//!
//! Every operation on a lock, an atomic or a condition is a step, at which another thread may go
//! on: one drawn evenly (a walk), or the one of the highest priority, where priorities are drawn
//! and a few steps lower that of whoever runs (which finds what needs few well-placed turns). All
//! threads have one clock, which moves with the steps; now and then it jumps to the next time
//! limit, and always when nobody else can go on. All chance comes from a seed.

use std::fmt::Write;

use super::task::Task;
use super::world::World;

/// Picoseconds of a step.
const STEP: u64 = 1_000_000;
/// Of so many choices one lets a time limit pass that others need not wait for.
const JUMPS: u64 = 600;
/// When so much time has passed nothing moves any more but those who wait with a limit.
const LONGEST: u64 = 600_000_000_000_000;
/// Steps of one thread in a row after which the others have their turn whatever their priority.
const UNFAIR: u64 = 20_000;

/// Who is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// At one step in so many, anyone who can go on.
    Walk(u64),
    /// The highest priority; it falls at so many steps of the first so many.
    Priorities(u64, u64),
}

/// A schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// Where all chance comes from.
    pub seed: u64,
    /// Who is next.
    pub choice: Choice,
    /// Steps at most.
    pub most: u64,
}

/// Who can go on, from when on, and for which of its waits.
type Ready = (u64, usize, u64);

pub(super) struct Chance {
    turns: Turns,
    random: u64,
    steps: u64,
    time: u64,
    ready: Vec<Ready>,
    /// Chosen by who stopped, for the one who switches.
    next: Option<Ready>,
    priorities: Vec<u64>,
    /// Priorities below all that were drawn, falling.
    low: u64,
    falls: Vec<u64>,
    row: u64,
    /// A number for all that was chosen.
    trace: u64,
    /// Why nobody goes on.
    stopped: Option<String>,
}

impl Chance {
    pub(super) fn new(turns: Turns, time: u64, ready: Vec<Ready>) -> Self {
        let mut chance = Self {
            turns,
            random: turns.seed,
            steps: 0,
            time,
            ready,
            next: None,
            priorities: Vec::new(),
            low: 1 << 20,
            falls: Vec::new(),
            row: 0,
            trace: 0,
            stopped: None,
        };
        if let Choice::Priorities(falls, within) = turns.choice {
            chance.falls = (0..falls).map(|_| chance.below(within.max(1))).collect();
        }
        chance
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    /// Nobody goes on.
    pub(super) fn stop(&mut self, why: &str) {
        self.stopped.get_or_insert_with(|| why.to_owned());
    }

    pub(super) fn push(&mut self, ready: Ready) {
        self.ready.push(ready);
    }

    pub(super) fn time(&self) -> u64 {
        self.time
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    pub(super) fn trace(&self) -> u64 {
        self.trace
    }

    /// Another step of `current`: true if somebody else may have the next.
    pub(super) fn step(&mut self, current: usize) -> bool {
        self.steps += 1;
        self.row += 1;
        self.time += STEP;
        if self.steps > self.turns.most {
            self.stopped = Some(format!("no end after {} steps", self.turns.most));
            return true;
        }
        match self.turns.choice {
            Choice::Walk(one_in) => self.below(one_in.max(1)) == 0,
            Choice::Priorities(..) => {
                if self.falls.contains(&self.steps) || self.row > UNFAIR {
                    self.lower(current);
                }
                true
            }
        }
    }

    /// `task` gives way.
    pub(super) fn lower(&mut self, task: usize) {
        self.low -= 1;
        let low = self.low;
        *self.priority(task) = low;
        self.row = 0;
    }

    fn priority(&mut self, task: usize) -> &mut u64 {
        while self.priorities.len() <= task {
            let drawn = (1 << 20) + self.below(1 << 20);
            self.priorities.push(drawn);
        }
        &mut self.priorities[task]
    }

    fn choose(&mut self, tasks: &[Task]) -> Option<Ready> {
        if self.stopped.is_some() {
            return None;
        }
        self.ready.retain(|(_, task, turn)| tasks[*task].waits_for(*turn));
        let limit = self.ready.iter().map(|ready| ready.0).filter(|at| *at > self.time).min();
        let free = self.ready.iter().any(|ready| ready.0 <= self.time);
        if let Some(limit) = limit
            && (!free || self.below(JUMPS) == 0)
        {
            self.time = limit;
        }
        if self.time > LONGEST {
            self.stopped = Some("nothing moves but those who wait with a time limit".into());
            return None;
        }
        let able: Vec<usize> =
            (0..self.ready.len()).filter(|at| self.ready[*at].0 <= self.time).collect();
        let at = match self.turns.choice {
            Choice::Walk(_) if able.is_empty() => None,
            Choice::Walk(_) => Some(able[self.below(able.len() as u64) as usize]),
            Choice::Priorities(..) => {
                let all: Vec<usize> = able.iter().map(|at| self.ready[*at].1).collect();
                let best = all.into_iter().max_by_key(|task| *self.priority(*task));
                able.into_iter().find(|at| Some(self.ready[*at].1) == best)
            }
        };
        let next = self.ready.swap_remove(at?);
        self.trace = (self.trace ^ next.1 as u64).wrapping_mul(0x0100_0000_01b3).rotate_left(5);
        Some(next)
    }
}

impl World {
    /// A step of the caller's, if turns are by chance: whether somebody else may be next.
    pub(super) fn by_chance(&mut self) -> bool {
        let current = self.caller();
        let Some(chance) = &mut self.chance else { return false };
        let others = chance.step(current);
        let time = chance.time();
        self.set_clock(current, time);
        others
    }

    /// Chooses who is next; true if that is the caller, who goes on.
    pub(super) fn chosen_again(&mut self) -> bool {
        let current = self.caller();
        let Some(chance) = &mut self.chance else { return false };
        chance.next = chance.choose(&self.tasks);
        if chance.next.is_none_or(|next| next.1 != current) {
            return false;
        }
        let clock = chance.next.take().map_or(0, |next| next.0);
        self.resume_at(current, clock);
        self.follow_chance();
        true
    }

    /// The caller's clock is everybody's.
    pub(super) fn follow_chance(&mut self) {
        if let Some(chance) = &self.chance {
            let time = chance.time();
            self.set_clock(self.caller(), time);
        }
    }

    /// Who is next, by chance.
    pub(super) fn next_by_chance(&mut self) -> Option<(u64, usize)> {
        let chance = self.chance.as_mut()?;
        let next = chance.next.take().or_else(|| chance.choose(&self.tasks))?;
        chance.row = 0;
        Some((next.0, next.1))
    }

    /// Who waits for what, when nobody can go on.
    pub(super) fn stuck(&self) -> String {
        let why = self.chance.as_ref().and_then(|chance| chance.stopped.clone());
        let mut text = why.unwrap_or_else(|| "all simulated threads wait for each other".into());
        for (number, task) in self.tasks.iter().enumerate().filter(|(_, task)| !task.is_done()) {
            let _ = write!(text, "\n  {} {}", self.name_of(number), task.waiting());
            for (holder, class, site) in self.holders_of(task.address()) {
                let _ = write!(text, "; {} has {class}, taken at {site}", self.name_of(holder));
            }
        }
        text
    }
}
