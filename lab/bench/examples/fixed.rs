//! `fixed WORKLOAD DESIGN OPERATIONS`: so many operations on one thread, under an instruction
//! counter. Two runs of different length differ by what the operations cost.

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
    match nextent_bench::repeat(workload, design, operations) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
