//! When a core's threads may count as idle, and when they must not: decisions only.
//!
//! A core is worth it while requests come to it. It goes back at once when, for a tick, none was
//! answered, one waits, and its threads would run but do not: then somebody else has the core. A
//! pause follows, four times as long each time, so that who computes for long is asked seldom.
//!
//! Where more threads would run than there are cores no core is idle, so no client moves, and
//! threads that let each client before them only change places with it more often: all are as
//! usual then. So are those of one queue while more than one client asks.

use nextent_fuse_sys::Class;
use nextent_sync::Duration;

/// The time between two looks.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// The same, in ticks, where nobody was harmed for [`UNHARMED`] ticks: who looks disturbs, too.
pub(crate) const SELDOM: u32 = 4;

/// Ticks without harm after which looks come seldom.
const UNHARMED: u32 = 64;

/// Requests within a tick that make a core worth it.
const ENOUGH: u64 = 2;

/// Ticks without a request after which threads are as usual again, for nobody looks for long.
const QUIET: u32 = 20;

/// Ticks of requests between going back and the next try: at first, and at most. The first is
/// short, since the engine's own threads also take a core now and then, for some milliseconds.
const PAUSE: (u32, u32) = (4, 2048);

/// Who has counted as idle without harm for so many pauses begins with the shortest again.
const CALM: u32 = 16;

/// A look that comes so much too late means that the machine is too busy for looks.
const LATE: Duration = Duration::from_millis(4);

/// Ticks until the next try after a late look.
const BUSY: u32 = 64;

/// Looks that see something, less those that do not, that make it last; it is over when none is
/// left, of twice as many at most.
const LASTING: u32 = 4;

/// Whether what looks see now and then is there, mostly.
#[derive(Debug, Default)]
pub(crate) struct Lasting {
    level: u32,
    here: bool,
}

impl Lasting {
    /// One look; whether it is there.
    pub(crate) fn look(&mut self, seen: bool) -> bool {
        self.level = match seen {
            true => (self.level + 1).min(2 * LASTING),
            false => self.level.saturating_sub(1),
        };
        self.here = if self.here { self.level > 0 } else { self.level >= LASTING };
        self.here
    }
}

/// What is seen of a core at each look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// Requests that were answered since the last one.
    pub(crate) served: u64,
    /// No core is idle anyway, or no client would stay.
    pub(crate) crowd: bool,
    /// Ticks after which it was to come.
    pub(crate) ticks: u32,
    /// The time after which it came.
    pub(crate) since: Duration,
}

impl Look {
    fn is_late(&self) -> bool {
        self.since >= TICK * self.ticks + LATE
    }
}

/// What is seen of a core on which nothing was answered for a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stall {
    /// A request waits somewhere and a thread of this core would run.
    pub(crate) wanted: bool,
    /// How long the core's threads have run since they began.
    pub(crate) ran: Duration,
}

/// The state of one core's threads.
#[derive(Debug)]
pub(crate) struct Watch {
    class: Class,
    /// Ticks until the next try.
    rest: u32,
    /// Ticks that the next rest will have.
    pause: u32,
    /// Ticks since the last request.
    quiet: u32,
    /// Ticks as idle since the last harm.
    unharmed: u32,
    /// How long threads had run when the stall began.
    stalled: Option<Duration>,
    /// Whether there was a crowd at the last look.
    in_crowd: bool,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self {
            class: Class::Usual,
            rest: 0,
            pause: PAUSE.0,
            quiet: 0,
            unharmed: 0,
            stalled: None,
            in_crowd: false,
        }
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// Whether there is nothing to look at: no request for a while, and all is as usual.
    pub(crate) fn is_quiet(&self) -> bool {
        self.class == Class::Usual && self.quiet >= QUIET
    }

    /// Whether looks may come seldom: threads have counted as idle for long without harm and do not
    /// seem to wait for their core, or have nothing to do, or no core would be idle.
    pub(crate) fn is_calm(&self) -> bool {
        match self.class {
            Class::Idle => self.unharmed >= UNHARMED && self.stalled.is_none(),
            Class::Usual => self.quiet > 0 || self.in_crowd,
        }
    }

    /// One look: the class that the threads are to have from now on, if it is another.
    pub(crate) fn tick(&mut self, look: Look, stall: impl FnOnce() -> Stall) -> Option<Class> {
        let Look { served, crowd, ticks, .. } = look;
        self.in_crowd = crowd;
        self.quiet = if served > 0 { 0 } else { self.quiet.saturating_add(ticks) };
        if self.class == Class::Usual {
            let least = if look.is_late() { BUSY } else { 0 };
            self.rest = self.rest.saturating_sub(ticks).max(least);
            let now = self.rest == 0 && served >= ENOUGH && !crowd;
            return now.then(|| self.become_class(Class::Idle));
        }
        if self.is_harmed(&look, stall) {
            (self.rest, self.unharmed) = (self.pause, 0);
            self.pause = (self.pause * 4).min(PAUSE.1);
            return Some(self.become_class(Class::Usual));
        }
        self.unharmed = self.unharmed.saturating_add(ticks);
        if self.unharmed >= CALM * self.pause {
            self.pause = PAUSE.0;
        }
        (self.quiet >= QUIET || crowd).then(|| self.become_class(Class::Usual))
    }

    fn become_class(&mut self, class: Class) -> Class {
        (self.class, self.stalled) = (class, None);
        class
    }

    /// Whether somebody else has the core while a request waits.
    fn is_harmed(&mut self, look: &Look, stall: impl FnOnce() -> Stall) -> bool {
        if look.served > 0 {
            self.stalled = None;
            return false;
        }
        let Stall { wanted, ran } = stall();
        match self.stalled.replace(ran) {
            _ if !wanted => {
                self.stalled = None;
                false
            }
            // Long enough for harm, whoever ran.
            _ if look.is_late() => true,
            // A request that takes long is no harm.
            Some(before) => ran.saturating_sub(before) < look.since / 2,
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look after one tick.
    fn saw(served: u64, crowd: bool) -> Look {
        Look { served, crowd, ticks: 1, since: TICK }
    }

    /// A late one.
    fn late(served: u64) -> Look {
        Look { since: TICK + LATE, ..saw(served, false) }
    }

    fn nothing() -> Stall {
        panic!("not looked at")
    }

    fn stall(wanted: bool, ran: u64) -> Stall {
        Stall { wanted, ran: Duration::from_micros(ran) }
    }

    /// One that counts as idle.
    fn idle() -> Watch {
        let mut watch = Watch::new();
        assert_eq!(watch.tick(saw(ENOUGH, false), nothing), Some(Class::Idle));
        watch
    }

    /// Has `watch` harmed, and the ticks until it tries again.
    fn rest_after_harm(watch: &mut Watch) -> u32 {
        assert_eq!(watch.tick(saw(0, false), || stall(true, 5)), None);
        assert_eq!(watch.tick(saw(0, false), || stall(true, 5)), Some(Class::Usual));
        let tries = (1..).find(|_| watch.tick(saw(50, false), nothing) == Some(Class::Idle));
        tries.expect("some time")
    }

    #[test]
    fn requests_make_it_idle_and_silence_usual() {
        let mut watch = Watch::new();
        assert_eq!(watch.tick(saw(ENOUGH - 1, false), nothing), None);
        let mut watch = idle();
        assert_eq!(watch.tick(saw(90, false), nothing), None);
        let silent = |watch: &mut Watch| watch.tick(saw(0, false), || stall(false, 0));
        let ticks = (1..).find(|_| silent(&mut watch) == Some(Class::Usual));
        assert_eq!(ticks, Some(QUIET));
        assert!(watch.is_quiet());
        // No harm was done: the next request may go below at once.
        assert_eq!(watch.tick(saw(ENOUGH, false), nothing), Some(Class::Idle));
        assert!(!watch.is_quiet());
    }

    #[test]
    fn starved_threads_go_back_in_two_looks() {
        let mut watch = idle();
        assert_eq!(watch.tick(saw(0, false), || stall(true, 70)), None);
        assert_eq!(watch.tick(saw(0, false), || stall(true, 75)), Some(Class::Usual));
    }

    #[test]
    fn one_late_look_is_enough() {
        assert_eq!(idle().tick(late(0), || stall(true, 70)), Some(Class::Usual));
        assert_eq!(idle().tick(late(0), || stall(false, 70)), None);
        assert_eq!(idle().tick(late(1), nothing), None);
        let mut watch = Watch::new();
        assert_eq!(watch.tick(late(50), nothing), None);
        let tries = (1..).find(|_| watch.tick(saw(50, false), nothing) == Some(Class::Idle));
        assert_eq!(tries, Some(BUSY));
    }

    #[test]
    fn who_runs_or_sleeps_is_not_starved() {
        let mut watch = idle();
        for n in 0..10 {
            // A long request, which computes.
            assert_eq!(watch.tick(saw(0, false), || stall(true, 1000 * n)), None);
        }
        let mut watch = idle();
        for _ in 0..10 {
            // One that waits for the disk; or threads that would run while nobody waits.
            assert_eq!(watch.tick(saw(0, false), || stall(false, 0)), None);
        }
        assert_eq!(watch.tick(saw(0, false), || stall(true, 0)), None);
        assert_eq!(watch.tick(saw(1, false), nothing), None);
        // The stall ended: the next is another.
        assert_eq!(watch.tick(saw(0, false), || stall(true, 0)), None);
    }

    #[test]
    fn in_a_crowd_all_is_as_usual() {
        let mut watch = idle();
        assert_eq!(watch.tick(saw(50, true), nothing), Some(Class::Usual));
        assert_eq!(watch.tick(saw(50, true), nothing), None);
        // Without a pause: nobody was harmed.
        assert_eq!(watch.tick(saw(50, false), nothing), Some(Class::Idle));
    }

    #[test]
    fn looks_come_seldom_once_nobody_was_harmed_for_long() {
        let seldom =
            |served| Look { served, crowd: false, ticks: SELDOM, since: TICK * SELDOM + LATE / 2 };
        let mut watch = idle();
        for _ in 0..UNHARMED {
            assert!(!watch.is_calm());
            assert_eq!(watch.tick(saw(50, false), nothing), None);
        }
        assert!(watch.is_calm());
        assert_eq!(watch.tick(seldom(50), nothing), None);
        // Perhaps somebody else has the core: the next look comes soon.
        assert_eq!(watch.tick(seldom(0), || stall(true, 5)), None);
        assert!(!watch.is_calm());
        assert_eq!(watch.tick(saw(0, false), || stall(true, 5)), Some(Class::Usual));
        assert!(watch.is_calm());
        assert_eq!(watch.tick(saw(50, false), nothing), None);
        assert!(!watch.is_calm());
        assert_eq!(watch.rest, PAUSE.0 - 1);
        assert_eq!(watch.tick(saw(50, true), nothing), None);
        assert!(watch.is_calm());
    }

    #[test]
    fn what_lasts_is_seen_for_some_looks() {
        let mut crowd = Lasting::default();
        assert!((0..100).all(|n| !crowd.look(n % 2 == 0)));
        assert!((1..LASTING).all(|_| !crowd.look(true)) && crowd.look(true));
        assert!((0..100).all(|_| crowd.look(true)));
        assert!((1..2 * LASTING).all(|_| crowd.look(false)) && !crowd.look(false));
    }

    #[test]
    fn pauses_grow_and_shrink() {
        let mut watch = idle();
        let rests: Vec<_> = (0..7).map(|_| rest_after_harm(&mut watch)).collect();
        assert_eq!(rests, [4, 16, 64, 256, 1024, 2048, 2048]);
        for _ in 0..CALM * PAUSE.1 {
            assert_eq!(watch.tick(saw(50, false), nothing), None);
        }
        assert_eq!(rest_after_harm(&mut watch), PAUSE.0);
    }
}
