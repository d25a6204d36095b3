//! Runs schedules: `schedules FIRST COUNT [FAULT]`; what failed first is told with its number, and
//! `schedules FIRST 1 [FAULT]` plays it again with the calls of its threads.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use nextent_schedules::{Bases, Fault, run};

/// Of so many schedules e2fsck judges one.
const THOROUGH: u64 = 50;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match explore(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(text) => {
            eprintln!("{text}\nusage: schedules FIRST COUNT [FAULT]");
            ExitCode::from(2)
        }
    }
}

fn fault_named(name: &str) -> Result<Fault, String> {
    let found = Fault::ALL.into_iter().find(|fault| format!("{fault:?}") == name);
    let found =
        found.ok_or_else(|| format!("{name}: no such fault; there are {:?}", Fault::ALL))?;
    match cfg!(feature = "mutants") {
        true => Ok(found),
        false => Err("built without the feature `mutants`: nothing can be planted".into()),
    }
}

/// Runs what is asked for; whether nothing was wrong.
fn explore(args: &[String]) -> Result<bool, String> {
    let (first, count, fault) = match args {
        [first, count] => (first, count, None),
        [first, count, fault] => (first, count, Some(fault_named(fault)?)),
        _ => return Err("which schedules?".into()),
    };
    let number = |text: &String| text.parse::<u64>().map_err(|_| format!("{text}: a number"));
    let (first, count) = (number(first)?, number(count)?);
    let bases = Bases::default();
    let (mut steps, began) = (0, nextent_clock::now());
    for seed in first..first + count {
        match run(&bases, seed, fault, count == 1 || seed % THOROUGH == 0) {
            Ok((taken, trace)) => {
                steps += taken;
                if count == 1 {
                    println!("schedule {seed}: {taken} steps, turns {trace:016x}");
                }
            }
            Err(failure) => {
                let tried = seed - first + 1;
                failure.story.iter().for_each(|line| println!("{line}"));
                let (by, seconds) = (failure.by, began.elapsed().as_secs_f64());
                println!("found\t{seed}\t{tried}\t{seconds:.1}\t{by}\n{}", failure.text);
                return Ok(false);
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("nothing\t{count}\t{seconds:.1}\t{steps} steps");
    Ok(true)
}
