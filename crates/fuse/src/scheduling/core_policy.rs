//! When the threads of a core may be in the idle class. Decisions only: no I/O, no locks.
//!
//! Threads enter the idle class while requests come to their core. They return at once when, for a
//! tick, no request was answered, one waits, and the threads want to run but do not: another
//! process has the core. A pause follows, four times as long each time, so that a process that
//! computes for long is disturbed rarely.
//!
//! Where more threads want to run than there are cores, no core is idle and no client moves. The
//! idle class would only let each client preempt the server more often, so threads stay in the
//! usual class. So do threads of one queue while there are several clients.

use nextent_fuse_sys::Class;
use nextent_sync::Duration;

/// The time between two samples.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// The same, in ticks, after [`UNHARMED`] ticks without harm: a sample costs time, too.
pub(crate) const SLOW_TICKS: u32 = 4;

/// Ticks without harm after which samples become rare.
const UNHARMED: u32 = 64;

/// Requests within a tick that make the idle class worth it.
const ENOUGH: u64 = 2;

/// Ticks without a request after which threads return to the usual class and the watchdog sleeps.
const QUIET: u32 = 20;

/// Ticks of requests between a return and the next try: at first, and at most. The first is short,
/// since the engine's own threads take a core now and then for some milliseconds.
const PAUSE: (u32, u32) = (4, 2048);

/// After so many pauses in the idle class without harm the next pause is the shortest again.
const CALM: u32 = 16;

/// A sample that comes so much too late shows that the machine is too busy for samples.
const LATE: Duration = Duration::from_millis(4);

/// Ticks until the next try after a late sample.
const BUSY: u32 = 64;

/// Positive samples, less negative ones, that turn a [`Debounced`] on. It turns off when none is
/// left; it counts up to twice as many.
const DEBOUNCE: u32 = 4;

/// A condition that samples see now and then, smoothed.
#[derive(Debug, Default)]
pub(crate) struct Debounced {
    level: u32,
    active: bool,
}

impl Debounced {
    /// Takes a sample; whether the condition holds.
    pub(crate) fn update(&mut self, holds: bool) -> bool {
        self.level = match holds {
            true => (self.level + 1).min(2 * DEBOUNCE),
            false => self.level.saturating_sub(1),
        };
        self.active = if self.active { self.level > 0 } else { self.level >= DEBOUNCE };
        self.active
    }
}

/// One sample of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Requests answered since the last sample.
    pub(crate) served: u64,
    /// No core is idle anyway, or the client would move anyway.
    pub(crate) overloaded: bool,
    /// Ticks after which the sample was due.
    pub(crate) ticks: u32,
    /// The time after which it was taken.
    pub(crate) since: Duration,
}

impl Sample {
    fn is_late(&self) -> bool {
        self.since >= TICK * self.ticks + LATE
    }
}

/// What is seen of a core that answered nothing for a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stall {
    /// A request waits, and a thread of this core wants to run.
    pub(crate) wanted: bool,
    /// Total run time of the core's threads.
    pub(crate) ran: Duration,
}

/// The state of one core's threads.
#[derive(Debug)]
pub(crate) struct CorePolicy {
    class: Class,
    /// Ticks until the next try.
    pause_left: u32,
    /// Ticks of the next pause.
    pause: u32,
    /// Ticks since the last request.
    quiet: u32,
    /// Ticks in the idle class since the last harm.
    unharmed: u32,
    /// Total run time when the stall began.
    stalled: Option<Duration>,
    /// Whether the last sample found the machine overloaded.
    was_overloaded: bool,
}

impl CorePolicy {
    pub(crate) fn new() -> Self {
        Self {
            class: Class::Usual,
            pause_left: 0,
            pause: PAUSE.0,
            quiet: 0,
            unharmed: 0,
            stalled: None,
            was_overloaded: false,
        }
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// Whether the watchdog may sleep: no request for a while, and threads are in the usual class.
    pub(crate) fn is_quiet(&self) -> bool {
        self.class == Class::Usual && self.quiet >= QUIET
    }

    /// Whether samples may be rare. In the idle class: threads were not harmed for long and do not
    /// seem to wait for their core. In the usual class: they have no requests, or no core would be
    /// idle.
    pub(crate) fn is_calm(&self) -> bool {
        match self.class {
            Class::Idle => self.unharmed >= UNHARMED && self.stalled.is_none(),
            Class::Usual => self.quiet > 0 || self.was_overloaded,
        }
    }

    /// Takes a sample; the class that the threads change to, if any.
    pub(crate) fn tick(&mut self, sample: Sample, stall: impl FnOnce() -> Stall) -> Option<Class> {
        let Sample { served, overloaded, ticks, .. } = sample;
        self.was_overloaded = overloaded;
        self.quiet = if served > 0 { 0 } else { self.quiet.saturating_add(ticks) };
        if self.class == Class::Usual {
            let least = if sample.is_late() { BUSY } else { 0 };
            self.pause_left = self.pause_left.saturating_sub(ticks).max(least);
            let now = self.pause_left == 0 && served >= ENOUGH && !overloaded;
            return now.then(|| self.become_class(Class::Idle));
        }
        if self.is_harmed(&sample, stall) {
            (self.pause_left, self.unharmed) = (self.pause, 0);
            self.pause = (self.pause * 4).min(PAUSE.1);
            return Some(self.become_class(Class::Usual));
        }
        self.unharmed = self.unharmed.saturating_add(ticks);
        if self.unharmed >= CALM * self.pause {
            self.pause = PAUSE.0;
        }
        (self.quiet >= QUIET || overloaded).then(|| self.become_class(Class::Usual))
    }

    fn become_class(&mut self, class: Class) -> Class {
        (self.class, self.stalled) = (class, None);
        class
    }

    /// Whether another process has the core while a request waits.
    fn is_harmed(&mut self, sample: &Sample, stall: impl FnOnce() -> Stall) -> bool {
        if sample.served > 0 {
            self.stalled = None;
            return false;
        }
        let Stall { wanted, ran } = stall();
        match self.stalled.replace(ran) {
            _ if !wanted => {
                self.stalled = None;
                false
            }
            // Long enough for harm, whatever ran.
            _ if sample.is_late() => true,
            // A request that takes long is no harm.
            Some(before) => ran.saturating_sub(before) < sample.since / 2,
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sample after one tick.
    fn sample(served: u64, overloaded: bool) -> Sample {
        Sample { served, overloaded, ticks: 1, since: TICK }
    }

    /// A late one.
    fn late(served: u64) -> Sample {
        Sample { since: TICK + LATE, ..sample(served, false) }
    }

    fn nothing() -> Stall {
        panic!("not sampled")
    }

    fn stall(wanted: bool, ran: u64) -> Stall {
        Stall { wanted, ran: Duration::from_micros(ran) }
    }

    /// A policy whose threads are in the idle class.
    fn idle() -> CorePolicy {
        let mut policy = CorePolicy::new();
        assert_eq!(policy.tick(sample(ENOUGH, false), nothing), Some(Class::Idle));
        policy
    }

    /// Harms the threads of `policy`; the ticks until the next try.
    fn pause_after_harm(policy: &mut CorePolicy) -> u32 {
        assert_eq!(policy.tick(sample(0, false), || stall(true, 5)), None);
        assert_eq!(policy.tick(sample(0, false), || stall(true, 5)), Some(Class::Usual));
        let tries = (1..).find(|_| policy.tick(sample(50, false), nothing) == Some(Class::Idle));
        tries.expect("some time")
    }

    #[test]
    fn requests_make_it_idle_and_silence_usual() {
        let mut policy = CorePolicy::new();
        assert_eq!(policy.tick(sample(ENOUGH - 1, false), nothing), None);
        let mut policy = idle();
        assert_eq!(policy.tick(sample(90, false), nothing), None);
        let silent = |policy: &mut CorePolicy| policy.tick(sample(0, false), || stall(false, 0));
        let ticks = (1..).find(|_| silent(&mut policy) == Some(Class::Usual));
        assert_eq!(ticks, Some(QUIET));
        assert!(policy.is_quiet());
        // No harm was done: the next request may use the idle class at once.
        assert_eq!(policy.tick(sample(ENOUGH, false), nothing), Some(Class::Idle));
        assert!(!policy.is_quiet());
    }

    #[test]
    fn starved_threads_return_in_two_samples() {
        let mut policy = idle();
        assert_eq!(policy.tick(sample(0, false), || stall(true, 70)), None);
        assert_eq!(policy.tick(sample(0, false), || stall(true, 75)), Some(Class::Usual));
    }

    #[test]
    fn one_late_sample_is_enough() {
        assert_eq!(idle().tick(late(0), || stall(true, 70)), Some(Class::Usual));
        assert_eq!(idle().tick(late(0), || stall(false, 70)), None);
        assert_eq!(idle().tick(late(1), nothing), None);
        let mut policy = CorePolicy::new();
        assert_eq!(policy.tick(late(50), nothing), None);
        let tries = (1..).find(|_| policy.tick(sample(50, false), nothing) == Some(Class::Idle));
        assert_eq!(tries, Some(BUSY));
    }

    #[test]
    fn threads_that_run_or_sleep_are_not_starved() {
        let mut policy = idle();
        for n in 0..10 {
            // A long request that computes.
            assert_eq!(policy.tick(sample(0, false), || stall(true, 1000 * n)), None);
        }
        let mut policy = idle();
        for _ in 0..10 {
            // A request that waits for the disk; or runnable threads without a waiting request.
            assert_eq!(policy.tick(sample(0, false), || stall(false, 0)), None);
        }
        assert_eq!(policy.tick(sample(0, false), || stall(true, 0)), None);
        assert_eq!(policy.tick(sample(1, false), nothing), None);
        // The stall ended: the next is another.
        assert_eq!(policy.tick(sample(0, false), || stall(true, 0)), None);
    }

    #[test]
    fn an_overloaded_machine_keeps_threads_in_the_usual_class() {
        let mut policy = idle();
        assert_eq!(policy.tick(sample(50, true), nothing), Some(Class::Usual));
        assert_eq!(policy.tick(sample(50, true), nothing), None);
        // Without a pause: no thread was harmed.
        assert_eq!(policy.tick(sample(50, false), nothing), Some(Class::Idle));
    }

    #[test]
    fn samples_become_rare_after_long_without_harm() {
        let seldom = |served| Sample {
            served,
            overloaded: false,
            ticks: SLOW_TICKS,
            since: TICK * SLOW_TICKS + LATE / 2,
        };
        let mut policy = idle();
        for _ in 0..UNHARMED {
            assert!(!policy.is_calm());
            assert_eq!(policy.tick(sample(50, false), nothing), None);
        }
        assert!(policy.is_calm());
        assert_eq!(policy.tick(seldom(50), nothing), None);
        // Another process may have the core: the next sample comes soon.
        assert_eq!(policy.tick(seldom(0), || stall(true, 5)), None);
        assert!(!policy.is_calm());
        assert_eq!(policy.tick(sample(0, false), || stall(true, 5)), Some(Class::Usual));
        assert!(policy.is_calm());
        assert_eq!(policy.tick(sample(50, false), nothing), None);
        assert!(!policy.is_calm());
        assert_eq!(policy.pause_left, PAUSE.0 - 1);
        assert_eq!(policy.tick(sample(50, true), nothing), None);
        assert!(policy.is_calm());
    }

    #[test]
    fn a_debounced_condition_needs_several_samples() {
        let mut overloaded = Debounced::default();
        assert!((0..100).all(|n| !overloaded.update(n % 2 == 0)));
        assert!((1..DEBOUNCE).all(|_| !overloaded.update(true)) && overloaded.update(true));
        assert!((0..100).all(|_| overloaded.update(true)));
        assert!((1..2 * DEBOUNCE).all(|_| overloaded.update(false)) && !overloaded.update(false));
    }

    #[test]
    fn pauses_grow_and_shrink() {
        let mut policy = idle();
        let pauses: Vec<_> = (0..7).map(|_| pause_after_harm(&mut policy)).collect();
        assert_eq!(pauses, [4, 16, 64, 256, 1024, 2048, 2048]);
        for _ in 0..CALM * PAUSE.1 {
            assert_eq!(policy.tick(sample(50, false), nothing), None);
        }
        assert_eq!(pause_after_harm(&mut policy), PAUSE.0);
    }
}
