//! `fixed WORKLOAD DESIGN OPERATIONS`: so many operations on one thread, under an instruction
//! counter. Two runs of different length differ by what the operations cost.
//!
//! All on one core: an image is else laid out by as many threads as there are cores, and who of
//! them comes first decides how memory is got.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [workload, design, operations] = &args[..] else {
        eprintln!("usage: fixed WORKLOAD DESIGN OPERATIONS");
        return ExitCode::from(2);
    };
    let Ok(operations) = operations.parse() else {
        eprintln!("{operations}: not a number");
        return ExitCode::from(2);
    };
    if let Err(error) = stay() {
        eprintln!("staying on one core: {error}");
        return ExitCode::FAILURE;
    }
    match nextent_lab::repeat(workload, design, operations) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

/// Keeps this thread, and all it starts, on the first core it may use.
fn stay() -> rustix::io::Result<()> {
    let may = sched_getaffinity(None)?;
    let mut one = CpuSet::new();
    if let Some(core) = (0..CpuSet::MAX_CPU).find(|core| may.is_set(*core)) {
        one.set(core);
    }
    sched_setaffinity(None, &one)
}
