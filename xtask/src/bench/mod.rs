//! Compares this program with a peer on the same work, in alternating rounds, so that drift affects
//! both. Prints the medians, their ratio and the goal.
//!
//! `cargo xtask bench [ROUNDS]`, and `bench mount [ROUNDS]` for the mount, see [`mount`]. A missing
//! peer skips its pair. Files are made under `TMPDIR`; with a directory in memory the host's disk
//! does not matter.

mod measure;
mod mount;
mod pairs;

use crate::shell::cargo;
use measure::median;
use std::path::PathBuf;

/// The default number of rounds.
const ROUNDS: usize = 5;

/// One line of the table.
struct Row {
    name: &'static str,
    /// Medians, ours and the peer's, with their unit.
    ours: f64,
    peer: Option<f64>,
    unit: &'static str,
    /// The comparison with the goal.
    verdict: Verdict,
}

enum Verdict {
    /// The factor by which this program is better than the peer, and the goal.
    Ratio(f64, f64),
    /// A limit for this program's figure.
    Limit(f64),
}

/// Runs all pairs.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    if args.first().is_some_and(|word| word == "mount") {
        return mount::run(&args[1..]);
    }
    let rounds = match args.first() {
        None => ROUNDS,
        Some(text) => text.parse().map_err(|_| "usage: cargo xtask bench [mount] [ROUNDS]")?,
    };
    build()?;
    let dir = tempfile::Builder::new().prefix("nextent-bench-").tempdir();
    let dir = dir.map_err(|error| error.to_string())?;
    let bench = pairs::Bench::new(dir.path(), rounds)?;
    let header = format!(
        "{:<40} {:>12} {:>12} {:>6} {:>9}  goal",
        "pair, medians", "ours", "peer", "unit", "ratio"
    );
    println!("{header}");
    let mut missed = 0;
    for pair in [
        pairs::Bench::fill,
        pairs::Bench::read_out,
        pairs::Bench::read_out_cold,
        pairs::Bench::open_time,
        pairs::Bench::open_memory,
        pairs::Bench::fallocate,
        pairs::Bench::two_threads,
    ] {
        match pair(&bench) {
            Ok(row) => missed += usize::from(!print(&row)),
            Err(text) => println!("{text}"),
        }
    }
    println!("{rounds} rounds each; goals missed: {missed}");
    Ok(())
}

fn build() -> Result<(), String> {
    println!("building the release");
    let build = ["build", "--profile", "dist", "--quiet", "-p", "nextent-cli", "-p", "nextent-lab"];
    if !cargo(build).status().is_ok_and(|status| status.success()) {
        return Err("nextent and nextent-lab do not build".into());
    }
    Ok(())
}

/// Prints a row; whether it meets its goal.
fn print(row: &Row) -> bool {
    let peer = row.peer.map_or("-".into(), |peer| format!("{peer:.3}"));
    let (ratio, goal, met) = match row.verdict {
        Verdict::Ratio(ratio, goal) => (format!("{ratio:.2}x"), format!("{goal}x"), ratio >= goal),
        Verdict::Limit(limit) => ("-".into(), format!("at most {limit}"), row.ours <= limit),
    };
    let word = if met { "met" } else { "MISSED" };
    let (name, ours, unit) = (row.name, row.ours, row.unit);
    println!("{name:<40} {ours:>12.3} {peer:>12} {unit:>6} {ratio:>9}  {goal} {word}");
    met
}

/// The directory of the release build.
fn shipped() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR");
    target.map_or_else(|| crate::shell::root().join("target"), PathBuf::from).join("dist")
}

/// The medians of two measurements in alternating rounds.
fn in_turns(
    rounds: usize,
    mut ours: impl FnMut() -> Result<f64, String>,
    mut peer: impl FnMut() -> Result<f64, String>,
) -> Result<(f64, f64), String> {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // The order alternates, so that neither always has the warmer cache.
        if round % 2 == 0 {
            a.push(ours()?);
            b.push(peer()?);
        } else {
            b.push(peer()?);
            a.push(ours()?);
        }
    }
    Ok((median(a), median(b)))
}
