//! Project tasks, run as `cargo xtask TASK`.
//!
//! - `demo`: builds the tool and demonstrates it on a new image.
//! - `test`: runs everything that CI runs; ends with the counts.
//! - `tidy`: checks rules of the source that no compiler checks.
//! - `bench [mount] [ROUNDS]`: compares medians with those of other programs on the same work.
//! - `instructions [record | simulate]`: compares instructions of an operation with bounds.
//! - `memory [FILES]`: measures resident memory of long runs: a walk over a mount, a large
//!   fallocate.
//! - `overlay [--minutes N] [--lower DIR]`: installs packages in an overlayfs above a mount, and
//!   compares the upper layer with that above Linux's ext4.
//! - `mutants [replay SEED [BUG]]`: runs random schedules, without and with each injected bug.
//! - `miri`: runs the unsafe code of `sync` under Miri.
//! - `dist`: makes the static program, man pages, completions, a Debian package.
//! - `differential [mkfs | copies] [--minutes N] [--seed SEED]`: compares random volumes and random
//!   copies with mke2fs, coreutils and tar.
//! - `fuzz [TARGET] [SECONDS]`: runs the fuzz targets.
//!
//! Each task is a module; this file only dispatches.

#![forbid(unsafe_code)]

mod bench;
mod beside;
mod demo;
mod differential;
mod dist;
mod fuzz;
mod instructions;
mod memory;
mod miri;
mod mutants;
mod overlay;
mod publish;
mod setup;
mod shell;
mod stuck;
mod test;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask demo | test | tidy | bench [mount] [ROUNDS] | \
    dist | instructions [record | simulate] | memory [FILES] | \
    mutants [replay SEED [BUG]] | miri | overlay [--minutes N] [--lower DIR] | \
    differential [mkfs | copies] [--minutes N] [--seed SEED] | \
    fuzz [TARGET] [SECONDS]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let task = args.first().map_or("", String::as_str);
    let done = match task {
        "demo" => demo::run(),
        "test" => test::run(&args[1..]),
        "tidy" => tidy::run(),
        "bench" => bench::run(&args[1..]),
        "instructions" => instructions::run(&args[1..]),
        "memory" => memory::run(&args[1..]),
        "overlay" => overlay::run(&args[1..]),
        "mutants" => mutants::run(&args[1..]),
        "miri" => miri::run(),
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
