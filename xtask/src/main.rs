//! Project tasks, run as `cargo xtask TASK`.
//!
//! - `demo`: builds the tool and shows, on a fresh image, what it does.
//! - `test`: everything that CI runs; ends with the counts.
//! - `tidy`: the rules of the source that no compiler checks.
//! - `bench [ROUNDS]`: the same work by us and by others, in medians.
//! - `instructions [record | simulate]`: instructions of an operation against recorded bounds.
//! - `memory [FILES]`: resident memory of long runs: a walk over a mount, a vast fallocate.
//! - `mutants [replay SEED [BUG]]`: random schedules, without a bug and with each injected bug.
//! - `dist`: the program without shared libraries, man pages, completions, a Debian package.
//! - `differential [mkfs | copies] [--minutes N] [--seed SEED]`: random volumes and random copies,
//!   by us and by mke2fs, coreutils and tar.
//! - `fuzz [TARGET] [SECONDS]`: the fuzz targets, each for a while.
//!
//! Each task is a module; this file only chooses one.

#![forbid(unsafe_code)]

mod bench;
mod demo;
mod differential;
mod dist;
mod fuzz;
mod instructions;
mod memory;
mod mutants;
mod setup;
mod shell;
mod stuck;
mod test;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask demo | test | tidy | bench [ROUNDS] | \
    dist | instructions [record | simulate] | memory [FILES] | \
    mutants [replay SEED [BUG]] | differential [mkfs | copies] [--minutes N] [--seed SEED] | \
    fuzz [TARGET] [SECONDS]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let task = args.first().map_or("", String::as_str);
    let done = match task {
        "demo" => demo::run(),
        "test" => test::run(),
        "tidy" => tidy::run(),
        "bench" => bench::run(&args[1..]),
        "instructions" => instructions::run(&args[1..]),
        "memory" => memory::run(&args[1..]),
        "mutants" => mutants::run(&args[1..]),
        "differential" => differential::run(&args[1..]),
        "dist" => dist::run(),
        "fuzz" => fuzz::run(&args[1..]),
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
