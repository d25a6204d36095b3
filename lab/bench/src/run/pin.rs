//! Threads on cores of their own.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// Keeps the calling thread on the `n`-th of the cores that it may use, from the first again if
/// there are fewer.
pub(crate) fn pin(n: usize) -> io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    let mut one = CpuSet::new();
    one.set(cores[n % cores.len()]);
    Ok(sched_setaffinity(None, &one)?)
}
