//! Pins threads to cores.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// Pins the calling thread to the `n`-th of the cores that it may use, modulo their number.
pub(crate) fn pin(n: usize) -> io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    let mut one = CpuSet::new();
    one.set(cores[n % cores.len()]);
    Ok(sched_setaffinity(None, &one)?)
}
