//! Random schedules: the scheduler as a model checker.
//!
//! Every operation on a lock, an atomic or a condition variable is a step, at which the scheduler
//! may choose another thread. All randomness comes from a seed. There are two policies:
//!
//! | policy | the next thread | finds |
//! |---|---|---|
//! | [`Choice::Walk`] | at one step in so many, any thread that can run | bugs that many interleavings show |
//! | [`Choice::Priorities`] | the highest random priority; some steps lower that of the running thread | bugs that need a few well-placed switches |
//!
//! All threads have one clock, which advances with each step. It jumps to the next time limit
//! sometimes, and always when no thread can run otherwise.

use crate::simulation::Simulation;
use crate::task::Task;
use std::fmt::Write;

/// Picoseconds of a step.
const STEP: u64 = 1_000_000;
/// One choice in so many jumps to the next time limit though other threads can run.
const JUMPS: u64 = 600;
/// Virtual time after which only waits with a time limit can still be going on.
const LONGEST: u64 = 600_000_000_000_000;
/// Steps of one thread in a row after which its priority falls.
const UNFAIR: u64 = 20_000;

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// At one step in so many, any thread that can run.
    Walk(u64),
    /// The highest priority, which falls at so many steps of the first so many.
    Priorities(u64, u64),
}

/// A schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// The seed of all randomness.
    pub seed: u64,
    /// The policy.
    pub choice: Choice,
    /// Steps at most.
    pub most: u64,
}

/// A thread that can run: from when on, its number, and which of its waits that ends.
type Ready = (u64, usize, u64);

pub(crate) struct RandomSchedule {
    turns: Turns,
    state: u64,
    steps: u64,
    time: u64,
    ready: Vec<Ready>,
    /// Chosen by the thread that stopped, for the scheduler.
    next: Option<Ready>,
    priorities: Vec<u64>,
    /// The lowest priority so far; drawn ones are above.
    low: u64,
    /// Steps at which the priority of the running thread falls.
    falls: Vec<u64>,
    /// Steps of the running thread in a row.
    row: u64,
    /// A hash of all choices.
    trace: u64,
    /// Why no thread runs any more.
    stopped: Option<String>,
}

impl RandomSchedule {
    pub(crate) fn new(turns: Turns, time: u64, ready: Vec<Ready>) -> Self {
        let mut schedule = Self {
            turns,
            state: turns.seed,
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
            schedule.falls = (0..falls).map(|_| schedule.below(within.max(1))).collect();
        }
        schedule
    }

    /// A random number below `end`, by SplitMix64.
    fn below(&mut self, end: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    /// Stops all threads.
    pub(crate) fn stop(&mut self, why: &str) {
        self.stopped.get_or_insert_with(|| why.to_owned());
    }

    pub(crate) fn push(&mut self, ready: Ready) {
        self.ready.push(ready);
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    pub(crate) fn trace(&self) -> u64 {
        self.trace
    }

    /// A step of `current`: whether the scheduler may choose another thread.
    fn step(&mut self, current: usize) -> bool {
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

    /// Gives `task` the lowest priority.
    pub(crate) fn lower(&mut self, task: usize) {
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
        self.ready.retain(|(_, task, wait)| tasks[*task].waits_for(*wait));
        let limit = self.ready.iter().map(|ready| ready.0).filter(|at| *at > self.time).min();
        let free = self.ready.iter().any(|ready| ready.0 <= self.time);
        if let Some(limit) = limit
            && (!free || self.below(JUMPS) == 0)
        {
            self.time = limit;
        }
        if self.time > LONGEST {
            self.stopped = Some("nothing moves but waits with a time limit".into());
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

impl Simulation {
    /// A step of the caller under a random schedule: whether another thread may be next.
    pub(crate) fn random_step(&mut self) -> bool {
        let current = self.caller();
        let Some(schedule) = &mut self.random else { return false };
        let others = schedule.step(current);
        let time = schedule.time;
        self.set_clock(current, time);
        others
    }

    /// Chooses the next thread; true if that is the caller, which then goes on.
    pub(crate) fn chose_caller_again(&mut self) -> bool {
        let current = self.caller();
        let Some(schedule) = &mut self.random else { return false };
        schedule.next = schedule.choose(&self.tasks);
        if schedule.next.is_none_or(|next| next.1 != current) {
            return false;
        }
        let clock = schedule.next.take().map_or(0, |next| next.0);
        self.resume_at(current, clock);
        self.follow_random_clock();
        true
    }

    /// Sets the caller's clock to that of the random schedule, if there is one.
    pub(crate) fn follow_random_clock(&mut self) {
        if let Some(schedule) = &self.random {
            let time = schedule.time;
            self.set_clock(self.caller(), time);
        }
    }

    /// The next thread by the random schedule.
    pub(crate) fn next_by_random(&mut self) -> Option<(u64, usize)> {
        let schedule = self.random.as_mut()?;
        let next = schedule.next.take().or_else(|| schedule.choose(&self.tasks))?;
        schedule.row = 0;
        Some((next.0, next.1))
    }

    /// A report of what each thread waits for, when none can run.
    pub(crate) fn deadlock_report(&self) -> String {
        let why = self.random.as_ref().and_then(|schedule| schedule.stopped.clone());
        let mut text = why.unwrap_or_else(|| "all simulated threads wait for each other".into());
        for (number, task) in self.tasks.iter().enumerate().filter(|(_, task)| !task.done) {
            let _ = write!(text, "\n  {} {}", self.name_of(number), task.waiting());
            for (holder, class, site) in self.holders_of(task.address()) {
                let _ = write!(text, "; {} has {class}, taken at {site}", self.name_of(holder));
            }
        }
        text
    }
}
