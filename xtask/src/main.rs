//! Project tasks, run as `cargo xtask TASK`.
//!
//! - `demo`: builds the tool and shows, on a fresh image, what it does.
//! - `test`: everything that CI runs; ends with the counts.
//! - `tidy`: the rules of the source that no compiler checks.
//!
//! Each task is a module; this file only chooses one.

#![forbid(unsafe_code)]

mod demo;
mod setup;
mod shell;
mod test;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask demo | test | tidy";

fn main() -> ExitCode {
    let task = std::env::args().nth(1).unwrap_or_default();
    let done = match task.as_str() {
        "demo" => demo::run(),
        "test" => test::run(),
        "tidy" => tidy::run(),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}
