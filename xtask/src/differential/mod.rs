//! Random comparisons with other programs: `cargo xtask differential mkfs [SECONDS] [SEED]`.
//!
//! `mkfs`: random sizes and options of mke2fs, by `nextent mkfs` and by mke2fs. Both accept or both
//! refuse; what both make has the same geometry by dumpe2fs; e2fsck finds nothing in ours; of the
//! small ones a part is mounted by the kernel and written to. What may differ is in one table,
//! [`exceptions`]. A number names a run: the same seed gives the same cases.

mod cases;
mod exceptions;
mod judge;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::shell::{cargo, has, root, shown};
use cases::{Case, Rng};
use judge::{Judge, Verdict};

const SECONDS: u64 = 60;
const SEED: u64 = 1;
/// One case in so many is mounted.
const MOUNTED: u64 = 6;
const USAGE: &str = "usage: cargo xtask differential mkfs [SECONDS] [SEED]";

/// What `cargo xtask test` runs: so many cases, and no longer than so long.
const SLICE: (u64, Duration) = (100, Duration::from_secs(10));

/// The first cases of the first seed.
pub(crate) fn slice() -> Result<(), String> {
    mkfs(SLICE.1, SLICE.0, SEED)
}

/// Runs the comparison that `args` name.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let number = |at: usize, default: u64| match args.get(at) {
        None => Ok(default),
        Some(text) => text.parse::<u64>().map_err(|_| USAGE.to_owned()),
    };
    match args {
        [what, ..] if what == "mkfs" && args.len() <= 3 => {
            mkfs(Duration::from_secs(number(1, SECONDS)?), u64::MAX, number(2, SEED)?)
        }
        _ => Err(USAGE.into()),
    }
}

fn mkfs(limit: Duration, cases: u64, seed: u64) -> Result<(), String> {
    for tool in ["mke2fs", "e2fsck", "dumpe2fs"] {
        if !has(tool) {
            println!("skipped: no {tool}");
            return Ok(());
        }
    }
    if !shown(cargo(["build", "--quiet", "-p", "nextent-cli"])).success {
        return Err("the program did not build".into());
    }
    let judge = Judge::new(&root().join("target/debug/nextent"))?;
    let began = Instant::now();
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut wrong = 0;
    for n in 0..cases {
        if began.elapsed() >= limit {
            break;
        }
        let case = Case::new(&mut Rng::new(seed, n));
        match judge.judge(&case, n % MOUNTED == 0)? {
            Verdict::Alike(how) | Verdict::Excepted(how) => *counts.entry(how).or_default() += 1,
            Verdict::Wrong(text) => {
                wrong += 1;
                println!("case {n} of seed {seed}: {case}\n{}", text.trim_end());
            }
        }
    }
    println!("seed {seed}, {} s:", began.elapsed().as_secs());
    for (how, count) in &counts {
        println!("{count:>6} {how}");
    }
    if wrong == 0 { Ok(()) } else { Err(format!("{wrong} cases differ from mke2fs")) }
}
