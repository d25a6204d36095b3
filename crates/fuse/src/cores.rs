//! The cores that the kernel has queues for, and those that this process may run on.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::stream::Stream;

/// Cores whose queues are served by threads on them, and those whose queues are served from
/// elsewhere: not online, or not for this process.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cores {
    pub(crate) here: Vec<u16>,
    pub(crate) elsewhere: Vec<u16>,
}

impl Cores {
    /// The cores of this machine.
    pub(crate) fn find() -> std::io::Result<Self> {
        let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
        let bad = || std::io::Error::other(format!("possible cores: {}", possible.trim()));
        // The kernel numbers queues from 0, whatever numbers cores have.
        let queues = count(possible.trim()).ok_or_else(bad)?;
        let ours = sched_getaffinity(None)?;
        let may = |core: &u16| usize::from(*core) < CpuSet::MAX_CPU && ours.is_set((*core).into());
        let (here, elsewhere) = (0..queues).partition(may);
        Ok(Self { here, elsewhere })
    }
}

/// How many a list such as `0-3,8` names.
fn count(list: &str) -> Option<u16> {
    let mut count = 0_u16;
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

/// Where the calling thread runs: on the core whose queue it serves, so that nobody else is woken
/// for a request; while it moves a stream of long ones, wherever a core is idle, since a reader
/// then goes on with what it has while more is copied. Where the kernel refuses, the thread stays
/// where it may be.
pub(crate) struct Post {
    home: CpuSet,
    anywhere: CpuSet,
    stream: Stream,
}

impl Post {
    /// At `home`, one of the cores `here`.
    pub(crate) fn take(home: u16, here: &[u16]) -> Self {
        let post = Self { home: set(&[home]), anywhere: set(here), stream: Stream::default() };
        let _ = sched_setaffinity(None, &post.home);
        post
    }

    /// A request with `bytes` beside its header, or in its answer, is done.
    pub(crate) fn moved(&mut self, bytes: usize) {
        let was_away = self.stream.is_here();
        if self.stream.moved(bytes) != was_away {
            let to = if was_away { &self.home } else { &self.anywhere };
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
    fn lists() {
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-3"), Some(4));
        assert_eq!(count("0-1,4,8-9"), Some(5));
        for bad in ["", "x", "3-1", "0-", "0-99999"] {
            assert_eq!(count(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_stream_leaves_its_core_and_what_is_short_comes_back() {
        let Ok(Cores { here, .. }) = Cores::find() else { return };
        let thread = nextent_sync::thread::spawn(move || {
            let on = || sched_getaffinity(None).expect("this thread's cores");
            let mut post = Post::take(here[0], &here);
            assert_eq!(on(), set(&here[..1]));
            for _ in 0..2 {
                post.moved(1);
                assert_eq!(on(), set(&here[..1]));
                (0..5).for_each(|_| post.moved(1 << 20));
                assert_eq!(on(), set(&here));
                post.moved(1);
                assert_eq!(on(), set(&here[..1]));
            }
        });
        thread.join().expect("no panic");
    }
}
