//! What it takes to sleep for a lock: to look at it before, to be woken, and to wake.
//!
//! How soon a thread is woken depends on how far its core has got with sleeping itself, and on how
//! far the two cores are from each other: on one virtual machine it took 7 us in the mean where a
//! turn took 22 ns, and 15 where it took 118. So it is measured beside each round.

use super::calibrate::{best, each};
use super::measured::middle;
use crate::run::pin;
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{Condvar, Duration, LockClass, Mutex, hint, now, thread};
use serde::{Deserialize, Serialize};

/// Nanoseconds: whoever is woken on a core that does nothing runs long before that.
pub(super) const LONGEST: f64 = 1e6;

/// Only this module's.
static CLASS: LockClass = LockClass::new("calibration", 1);

/// What waking a thread takes that sleeps for a lock: nanoseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Waking {
    /// From when it is woken until it goes on.
    pub(super) sleeper: f64,
    /// For how long whoever wakes it is busy with that.
    pub(super) waker: f64,
}

impl Waking {
    /// Measures it with a thread that has slept for up to 2 us, as one does that waits for a lock;
    /// in the mean. One that has slept for longer has the core in a deeper sleep; one that was
    /// about to sleep goes on at once, and one whose core was on the way there soon: on a virtual
    /// machine of Zen 5 they took 0.2, 2 and 8 to 25 us, and who woke them 0.3, 0.5 to 1.5 and 4 to
    /// 6. So the middle ones say little.
    pub(super) fn measure() -> Self {
        let [sleeper, waker] = run();
        Self { sleeper, waker }
    }

    /// The middle of some.
    pub(super) fn middle(all: impl Iterator<Item = Self> + Clone) -> Option<Self> {
        all.clone().next()?;
        let of = |what: fn(Self) -> f64| middle(&mut all.clone().map(what).collect::<Vec<f64>>());
        Some(Self { sleeper: of(|one| one.sleeper), waker: of(|one| one.waker) })
    }

    /// Whether such can have been measured.
    pub(super) fn is_sound(&self) -> bool {
        [self.sleeper, self.waker].iter().all(|time| *time > 0.0 && *time < LONGEST)
    }
}

/// Wakes a thread again and again: nanoseconds until it goes on, and of who wakes it.
fn run() -> [f64; 2] {
    const TURNS: u32 = 512;
    const SLEPT: Duration = Duration::from_micros(2);
    const STEPS: u32 = 16;
    let (woken, changed) = (Mutex::new(&CLASS, now()), Condvar::new());
    // Relaxed: changed under the lock, which the waker takes after its look.
    let sleeps = AtomicBool::new(false);
    let sleeper = || {
        // Where that is refused the system chooses.
        let _ = pin(1);
        let slept = |_| {
            let mut woken = woken.lock();
            sleeps.store(true, Ordering::Relaxed);
            while sleeps.load(Ordering::Relaxed) {
                changed.wait(&mut woken);
            }
            woken.elapsed()
        };
        mean((0..TURNS).map(slept).collect())
    };
    let waker = || {
        // Where that is refused the system chooses.
        let _ = pin(0);
        let wakes = |turn| {
            while !sleeps.load(Ordering::Relaxed) {
                hint::spin_loop();
            }
            // Had once the other waits for the condition.
            drop(woken.lock());
            pass(SLEPT * (turn % STEPS) / STEPS);
            let mut woken = woken.lock();
            sleeps.store(false, Ordering::Relaxed);
            let began = now();
            *woken = began;
            drop(woken);
            changed.notify_one();
            began.elapsed()
        };
        mean((0..TURNS).map(wakes).collect())
    };
    thread::scope(|scope| {
        let both = [scope.spawn(sleeper), scope.spawn(waker)];
        both.map(|one| one.join().unwrap_or(f64::NAN))
    })
}

/// Nanoseconds, in the mean of all but the slowest few: something else ran there.
fn mean(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times.truncate(times.len() - times.len() / 64);
    let all: f64 = times.iter().map(|time| time.as_nanos() as f64).sum();
    all / times.len() as f64
}

/// Works for that long.
fn pass(time: Duration) {
    let since = now();
    while since.elapsed() < time {
        hint::spin_loop();
    }
}

/// Nanoseconds of an instruction that says that one waits, and of offering the core to nobody: what
/// who waits for a lock of ours does between two looks.
pub(super) fn rests() -> [f64; 2] {
    const TIMES: u64 = 10_000;
    [best(|| each(TIMES, |_| hint::spin_loop())), best(|| each(TIMES, |_| thread::yield_now()))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sleeps_and_who_wakes_take_some_time() {
        let (waking, rests) = (Waking::measure(), rests());
        assert!(waking.is_sound(), "{waking:?}");
        assert!(!Waking { waker: f64::NAN, ..waking }.is_sound());
        assert!(rests.iter().all(|each| *each > 0.0), "{rests:?}");
        let some = [(7.0, 2.0), (5.0, 4.0), (9.0, 3.0)];
        let some = some.map(|(sleeper, waker)| Waking { sleeper, waker });
        let middle = Waking::middle(some.into_iter()).expect("there are some");
        assert_eq!((middle.sleeper, middle.waker), (7.0, 3.0));
        assert!(Waking::middle([].into_iter()).is_none());
    }

    #[test]
    fn the_slowest_are_not_counted() {
        let times = (1..=128).map(|n| Duration::from_nanos(if n > 126 { 1 << 30 } else { n }));
        assert_eq!(mean(times.collect()), 63.5);
    }
}
