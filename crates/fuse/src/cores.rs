//! The cores that the kernel has queues for, and those that this process may run on.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::registration::Turn;
use crate::stream::Stream;

/// Cores whose queues are served by threads on them, and cores whose queues are served by threads
/// elsewhere: they are offline, or this process may not use them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cores {
    pub(crate) here: Vec<u16>,
    pub(crate) elsewhere: Vec<u16>,
}

/// The queues that one thread serves.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Queues {
    pub(crate) numbers: Vec<u16>,
    /// The core that the thread is kept on.
    pub(crate) core: Option<u16>,
    pub(crate) turn: Turn,
}

impl Cores {
    /// The cores of this machine.
    pub(crate) fn find() -> std::io::Result<Self> {
        let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
        let bad = || std::io::Error::other(format!("possible cores: {}", possible.trim()));
        // The kernel numbers queues from 0 without gaps.
        let queues = count(possible.trim()).ok_or_else(bad)?;
        let ours = sched_getaffinity(None)?;
        let may = |core: &u16| usize::from(*core) < CpuSet::MAX_CPU && ours.is_set((*core).into());
        let (here, elsewhere) = (0..queues).partition(may);
        Ok(Self { here, elsewhere })
    }

    /// The queues of one thread for each core, and of one for all cores elsewhere. The latter have
    /// few clients or none, so their turn is the last one. Without any, it is the last core's.
    pub(crate) fn queues(&self) -> Vec<Queues> {
        let on = |core: &u16| Queues { numbers: vec![*core], core: Some(*core), turn: Turn::First };
        let mut queues: Vec<_> = self.here.iter().map(on).collect();
        if !self.elsewhere.is_empty() {
            let numbers = self.elsewhere.clone();
            queues.push(Queues { numbers, core: None, turn: Turn::First });
        }
        if let Some(last) = queues.last_mut() {
            last.turn = Turn::Last;
        }
        queues
    }
}

/// The number of cores in a list such as `0-3,8`.
fn count(list: &str) -> Option<u16> {
    let mut count = 0_u16;
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

/// Pins the calling thread to the core whose queue it serves, so that no other core is woken for a
/// request. While the thread moves a stream of long requests it may run on any core: a reader goes
/// on with what it has while more is copied. Where the kernel refuses, the thread stays where it
/// may be.
pub(crate) struct CorePinning {
    own_core: CpuSet,
    anywhere: CpuSet,
    stream: Stream,
}

impl CorePinning {
    /// Pins to `own_core`, one of the cores `here`.
    pub(crate) fn take(own_core: u16, here: &[u16]) -> Self {
        let pinning =
            Self { own_core: set(&[own_core]), anywhere: set(here), stream: Stream::default() };
        let _ = sched_setaffinity(None, &pinning.own_core);
        pinning
    }

    /// Counts a request with `bytes` in it or its answer, besides headers.
    pub(crate) fn moved(&mut self, bytes: usize) {
        let was_away = self.stream.is_here();
        if self.stream.moved(bytes) != was_away {
            let to = if was_away { &self.own_core } else { &self.anywhere };
            let _ = sched_setaffinity(None, to);
        }
    }
}

fn set(cores: &[u16]) -> CpuSet {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set((*core).into()));
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_counted() {
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-3"), Some(4));
        assert_eq!(count("0-1,4,8-9"), Some(5));
        for bad in ["", "x", "3-1", "0-", "0-99999"] {
            assert_eq!(count(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_last_queues_have_the_last_turn() {
        let turns = |here: &[u16], elsewhere: &[u16]| {
            let queues = Cores { here: here.into(), elsewhere: elsewhere.into() }.queues();
            queues.into_iter().map(|one| (one.numbers, one.core, one.turn)).collect::<Vec<_>>()
        };
        let on = |core, turn| (vec![core], Some(core), turn);
        assert_eq!(turns(&[0], &[]), [on(0, Turn::Last)]);
        assert_eq!(turns(&[0, 2], &[]), [on(0, Turn::First), on(2, Turn::Last)]);
        let elsewhere = (vec![1, 3], None, Turn::Last);
        assert_eq!(turns(&[0], &[1, 3]), [on(0, Turn::First), elsewhere]);
    }

    #[test]
    fn a_stream_unpins_its_thread_and_a_short_request_pins_it_again() {
        let Ok(Cores { here, .. }) = Cores::find() else { return };
        let thread = nextent_sync::thread::spawn(move || {
            let on = || sched_getaffinity(None).expect("this thread's cores");
            let mut pinning = CorePinning::take(here[0], &here);
            assert_eq!(on(), set(&here[..1]));
            for _ in 0..2 {
                pinning.moved(1);
                assert_eq!(on(), set(&here[..1]));
                (0..5).for_each(|_| pinning.moved(1 << 20));
                assert_eq!(on(), set(&here));
                pinning.moved(1);
                assert_eq!(on(), set(&here[..1]));
            }
        });
        thread.join().expect("no panic");
    }
}
