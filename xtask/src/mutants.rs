//! The checker of schedules, and the faults that it must find: `mutants [replay SEED [FAULT]]`.
//!
//! One build, in which a fault is planted by name. Without a fault nothing may be found; with each
//! of them something must, within so many schedules. Faults are tried side by side, one on each
//! core.

use crate::shell::{cargo, command, root, shown};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

/// Schedules without a fault, of which none may fail.
const SOUND: u64 = 8000;
/// Schedules within which a fault must be found.
const BOUND: u64 = 8000;
/// Where schedules begin.
const FIRST: &str = "1";
/// What the tool is called.
const TOOL: &str = "target/mutants/schedules";

/// What came of one fault.
struct Row {
    fault: String,
    good: bool,
    text: String,
}

/// Builds, runs all, prints the table; an error if a fault survives or something is found without
/// one.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let replay = match args {
        [] => None,
        [word, rest @ ..] if word == "replay" && matches!(rest.len(), 1 | 2) => Some(rest),
        _ => return Err("usage: cargo xtask mutants [replay SEED [FAULT]]".into()),
    };
    let features = ["--features", "nextent-schedules/mutants"];
    let build = [&["build", "--profile", "mutants", "-p", "nextent-schedules"], &features[..]];
    if !shown(cargo(build.concat())).success {
        return Err("the checker did not build".into());
    }
    if let Some(rest) = replay {
        let count = "1".to_owned();
        let all: Vec<&String> = [&rest[0], &count].into_iter().chain(rest.get(1)).collect();
        let found = !shown(tool(&all)).success;
        return if found { Err("this schedule fails".into()) } else { Ok(()) };
    }
    let mut rows = vec![sound()];
    rows.extend(all_faults(&faults()?));
    println!("{:<22} {:<24} {:>9} {:>6} {:>7}", "fault", "found by", "schedules", "bound", "s");
    rows.iter().for_each(|row| println!("{}", row.text));
    let bad: Vec<&str> =
        rows.iter().filter(|row| !row.good).map(|row| row.fault.as_str()).collect();
    match bad.is_empty() {
        true => Ok(()),
        false => Err(format!("not as it must be: {}", bad.join(", "))),
    }
}

fn tool<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Command {
    command(&root().join(TOOL).to_string_lossy(), args)
}

/// The names of the faults, by the one table of them.
fn faults() -> Result<Vec<String>, String> {
    let path = root().join("crates/sync/src/planted.rs");
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let table = text.split("= [").nth(1).and_then(|rest| rest.split("];").next());
    let names = table.unwrap_or_default().split(',').filter_map(|word| word.split("::").nth(1));
    let names: Vec<String> = names.map(|name| name.trim().to_owned()).collect();
    if names.len() < 8 { Err("the table of faults was not found".into()) } else { Ok(names) }
}

fn all_faults(faults: &[String]) -> Vec<Row> {
    let (next, rows) = (Mutex::new(0..faults.len()), Mutex::new(Vec::new()));
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let Some(at) = next.lock().ok().and_then(|mut next| next.next()) else {
                        return;
                    };
                    let row = planted(&faults[at]);
                    if let Ok(mut rows) = rows.lock() {
                        rows.push((at, row));
                    }
                }
            });
        }
    });
    let mut rows = rows.into_inner().unwrap_or_default();
    rows.sort_by_key(|row| row.0);
    rows.into_iter().map(|row| row.1).collect()
}

/// What one run said: its output's lines, and the words of the last line that counts.
fn told(args: &[&str]) -> (String, Vec<String>) {
    let output = tool(args).output();
    let output = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = output.unwrap_or_else(|error| error.to_string());
    let last = text
        .lines()
        .rev()
        .find(|line| line.starts_with("found\t") || line.starts_with("nothing\t"));
    let words = last.unwrap_or_default().split('\t').map(str::to_owned).collect();
    (text, words)
}

/// No fault, nothing found.
fn sound() -> Row {
    let count = SOUND.to_string();
    let (output, words) = told(&[FIRST, &count]);
    let good = words.first().is_some_and(|word| word == "nothing");
    if !good {
        println!("{output}\nthis again: cargo xtask mutants replay {}", seed(&words));
    }
    let (by, n, seconds) = match good {
        true => ("nothing, as it must be", SOUND, words.get(2)),
        false => ("SOMETHING", 0, words.get(3)),
    };
    Row { fault: "none".into(), good, text: line("none", by, n, SOUND, seconds) }
}

/// A fault, which must be found.
fn planted(fault: &str) -> Row {
    let count = BOUND.to_string();
    let (_, words) = told(&[FIRST, &count, fault]);
    let text = match words.first().map_or("", String::as_str) {
        "found" => {
            let by = words.get(4).map_or("", String::as_str);
            let n = words.get(2).and_then(|n| n.parse().ok()).unwrap_or(0);
            Some(line(fault, by, n, BOUND, words.get(3)))
        }
        "nothing" => None,
        // It ended without a word.
        _ => Some(line(fault, "the end of the process", 0, BOUND, None)),
    };
    let good = text.is_some();
    let text = text.unwrap_or_else(|| line(fault, "NOTHING", BOUND, BOUND, words.get(2)));
    Row { fault: fault.into(), good, text }
}

fn seed(words: &[String]) -> &str {
    words.get(1).map_or("?", String::as_str)
}

fn line(fault: &str, by: &str, n: u64, bound: u64, seconds: Option<&String>) -> String {
    let seconds = seconds.map_or("", String::as_str);
    format!("{fault:<22} {by:<24} {n:>9} {bound:>6} {seconds:>7}")
}
