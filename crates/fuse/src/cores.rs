//! The cores that the kernel has queues for, and those that this process may run on.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

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

/// Keeps the calling thread on a core. Where that is refused it runs where it may.
pub(crate) fn stay_on(core: u16) {
    let mut set = CpuSet::new();
    set.set(core.into());
    let _ = sched_setaffinity(None, &set);
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn lists() {
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-3"), Some(4));
        assert_eq!(count("0-1,4,8-9"), Some(5));
        for bad in ["", "x", "3-1", "0-", "0-99999"] {
            assert_eq!(count(bad), None, "{bad}");
        }
    }
}
