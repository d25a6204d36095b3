//! Runs schedules, and all bugs side by side.
//!
//! Without a bug no schedule may fail. Each bug must make one fail within a bound. The command runs
//! itself once for each bug, one process on each core, since a bug may end the process.

use super::Args;
use crate::failure::{Failure, Result, say};
use nextent_schedules::bugs::{self, BUGS};
use nextent_sync::{available_cores, parallel_map};
use std::process::{Command, ExitCode};

/// Schedules without a bug, all of which must pass.
const SOUND: u64 = 8000;
/// Schedules of which one must fail with each bug.
const BOUND: u64 = 60_000;
/// The number of the first schedule.
const FIRST: u64 = 1;

/// The result of one process.
struct Row {
    name: &'static str,
    good: bool,
    line: String,
}

/// `nextent-lab mutants`.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.list {
        for bug in BUGS {
            say!("{:<26} {}", bug.name, bug.effect);
        }
        return Ok(ExitCode::SUCCESS);
    }
    match args.seed {
        Some(seed) => explore(seed, args.count, args.bug.as_deref()),
        None => all(),
    }
}

/// Runs schedules in this process. The last lines of the output are for [`explored`], too.
fn explore(seed: u64, count: u64, bug: Option<&str>) -> Result<ExitCode> {
    let unknown = |name: &str| Failure::usage(format!("no bug is called {name}; see --list"));
    let bug = bug.map(|name| bugs::named(name).ok_or_else(|| unknown(name))).transpose()?;
    let end = seed.checked_add(count).filter(|_| count > 0);
    let end = end.ok_or_else(|| Failure::usage("--count: from 1 to what --seed leaves"))?;
    let began = nextent_sync::now();
    let ran = nextent_schedules::explore(seed..end, bug);
    let seconds = began.elapsed().as_secs_f64();
    match ran {
        Ok(passed) => {
            if count == 1 {
                let (steps, trace) = (passed.steps, passed.trace);
                say!("schedule {seed}: {steps} steps, decisions {trace:016x}");
            }
            say!("passed\t{count}\t{seconds:.1}\t{} steps", passed.steps);
            Ok(ExitCode::SUCCESS)
        }
        Err((failed, failure)) => {
            for line in &failure.history {
                say!("{line}");
            }
            say!("failed\t{failed}\t{}\t{seconds:.1}\t{}", failed - seed + 1, failure.by);
            say!("{}", failure.text);
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Runs all, prints a table; fails if a bug is not found or a schedule fails without one.
fn all() -> Result<ExitCode> {
    let mut rows = vec![without_bug()];
    let found = parallel_map(available_cores(), BUGS, |bug| with_bug(bug.name));
    rows.extend(found);
    say!("{:<26} {:<24} {:>9} {:>6} {:>7}", "bug", "found by", "schedules", "bound", "s");
    for row in &rows {
        say!("{}", row.line);
    }
    let bad: Vec<&str> = rows.iter().filter(|row| !row.good).map(|row| row.name).collect();
    if bad.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::new(format!("not as they must be: {}", bad.join(", "))))
}

/// The output of one process, and the words of the line with its result.
fn explored(count: u64, bug: Option<&str>) -> (String, Vec<String>) {
    let (seed, count) = (FIRST.to_string(), count.to_string());
    let mut args = vec!["mutants", "--seed", &seed, "--count", &count];
    args.extend(bug.iter().flat_map(|name| ["--bug", name]));
    let output = std::env::current_exe().and_then(|exe| Command::new(exe).args(args).output());
    let text = match output {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => error.to_string(),
    };
    let is_result = |line: &&str| line.starts_with("failed\t") || line.starts_with("passed\t");
    let result = text.lines().rev().find(is_result).unwrap_or_default();
    let words = result.split('\t').map(str::to_owned).collect();
    (text, words)
}

fn without_bug() -> Row {
    let (output, words) = explored(SOUND, None);
    let word = |at: usize| words.get(at).map_or("?", String::as_str);
    let good = word(0) == "passed";
    let line = match good {
        true => line("none", "nothing, as it must be", &SOUND.to_string(), word(2)),
        false => {
            let again = format!("cargo xtask mutants replay {}", word(1));
            let line = line("none", "A FAILURE", word(2), word(3));
            format!("{output}\nto replay it: {again}\n{line}")
        }
    };
    Row { name: "none", good, line }
}

fn with_bug(name: &'static str) -> Row {
    let (_, words) = explored(BOUND, Some(name));
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let (good, line) = match word(0) {
        "failed" => (true, line(name, word(4), word(2), word(3))),
        "passed" => (false, line(name, "NOTHING", &BOUND.to_string(), word(2))),
        _ => (true, line(name, "the end of the process", "", "")),
    };
    Row { name, good, line }
}

fn line(name: &str, by: &str, schedules: &str, seconds: &str) -> String {
    format!("{name:<26} {by:<24} {schedules:>9} {BOUND:>6} {seconds:>7}")
}
