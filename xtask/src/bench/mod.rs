//! Compares this program with a peer on the same work, in alternating rounds, so that drift affects
//! both. Prints the medians, their ratio and the goal.
//!
//! `cargo xtask bench [ROUNDS]`, `bench mount [ROUNDS]` for the mount, see [`mount`], and `bench
//! image [ROUNDS]` for building images, see [`image`], and `bench nbd [ROUNDS]` for images on
//! servers of network block devices, see [`nbd`]. A missing peer skips its pair. Files are made
//! under `TMPDIR`; with a directory in memory the host's disk does not matter.

mod image;
mod measure;
mod mount;
mod nbd;
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
    /// This program's figure as a multiple of the peer's, without a goal.
    Multiple(f64),
    /// No goal.
    Figure,
}

/// A measurement of one row.
type Pair<B> = fn(&B) -> Result<Row, String>;

/// Runs all pairs.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    if args.first().is_some_and(|word| word == "mount") {
        return mount::run(&args[1..]);
    }
    if args.first().is_some_and(|word| word == "image") {
        return image::run(&args[1..]);
    }
    if args.first().is_some_and(|word| word == "nbd") {
        return nbd::run(&args[1..]);
    }
    let rounds = rounds_of(args, "usage: cargo xtask bench [mount | image | nbd] [ROUNDS]")?;
    build(&["nextent-cli", "nextent-lab"])?;
    let dir = tempfile::Builder::new().prefix("nextent-bench-").tempdir();
    let dir = dir.map_err(|error| error.to_string())?;
    let bench = pairs::Bench::new(dir.path(), rounds)?;
    let pairs: [Pair<pairs::Bench>; 7] = [
        pairs::Bench::fill,
        pairs::Bench::read_out,
        pairs::Bench::read_out_cold,
        pairs::Bench::open_time,
        pairs::Bench::open_memory,
        pairs::Bench::fallocate,
        pairs::Bench::two_threads,
    ];
    print_table(&bench, &pairs, rounds);
    Ok(())
}

/// The number of rounds that the arguments ask for.
fn rounds_of(args: &[String], usage: &'static str) -> Result<usize, String> {
    match args {
        [] => Ok(ROUNDS),
        [text] => text.parse().ok().filter(|rounds| *rounds > 0).ok_or_else(|| usage.into()),
        _ => Err(usage.into()),
    }
}

/// Measures and prints rows.
fn print_table<B>(bench: &B, pairs: &[Pair<B>], rounds: usize) {
    let header = format!(
        "{:<48} {:>12} {:>12} {:>6} {:>9}  goal",
        "pair, medians", "ours", "peer", "unit", "ratio"
    );
    println!("{header}");
    let mut missed = 0;
    for pair in pairs {
        match pair(bench) {
            Ok(row) => missed += usize::from(!print(&row)),
            Err(text) => println!("{text}"),
        }
    }
    println!("{rounds} rounds each; goals missed: {missed}");
}

fn build(packages: &[&str]) -> Result<(), String> {
    println!("building the release");
    let mut build = cargo(["build", "--profile", "dist", "--quiet"]);
    for package in packages {
        build.args(["-p", package]);
    }
    if !build.status().is_ok_and(|status| status.success()) {
        return Err(format!("{} does not build", packages.join(" or ")));
    }
    Ok(())
}

/// Prints a row; whether it meets its goal.
fn print(row: &Row) -> bool {
    let peer = row.peer.map_or("-".into(), |peer| format!("{peer:.3}"));
    let (ratio, goal, met) = match row.verdict {
        Verdict::Ratio(ratio, goal) => {
            (format!("{ratio:.2}x"), format!("{goal:.3}x"), Some(ratio >= goal))
        }
        Verdict::Limit(limit) => ("-".into(), format!("at most {limit}"), Some(row.ours <= limit)),
        Verdict::Multiple(multiple) => (format!("{multiple:.2}:1"), "-".into(), None),
        Verdict::Figure => ("-".into(), "-".into(), None),
    };
    let word = met.map_or("", |met| if met { "met" } else { "MISSED" });
    let (name, ours, unit) = (row.name, row.ours, row.unit);
    println!("{name:<48} {ours:>12.3} {peer:>12} {unit:>6} {ratio:>9}  {goal} {word}");
    met.unwrap_or(true)
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
