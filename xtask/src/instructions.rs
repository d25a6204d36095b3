//! Compares the instructions of an operation, counted by valgrind, with recorded bounds.
//!
//! Operations need the same number of instructions on all machines with one instruction set, so
//! this detects regressions that timings on a shared machine cannot. Two runs of different length
//! are counted, on one thread and without periodic commits; their difference is the cost of the
//! operations.

use crate::shell::{cargo, command, has, root};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

/// The file with the bounds.
const BOUNDS: &str = "xtask/instructions.txt";
/// The file with the instructions that simulated cores are charged.
const SIMULATED: &str = "lab/sim/machines/instructions.txt";
/// Operations of the two runs.
const OPERATIONS: [u64; 2] = [10_000, 30_000];
/// The factor that `record` applies.
const MARGIN: f64 = 1.05;
/// The recorded operations. They rarely fill a transaction, so that no commit runs meanwhile.
/// `start-stop` is `handles` without touching the block.
const RECORDED: [(&str, &str); 6] = [
    ("fallocate2", "nextent"),
    ("append", "nextent"),
    ("read", "nextent"),
    ("stat", "nextent"),
    ("start-stop", "nextent"),
    ("handles", "nextent"),
];

/// Rows of the other table that are counted again each time, and their tolerance. Without this a
/// table of old code would go unnoticed.
const SAMPLED: [(&str, &str); 2] = [("churn", "nextent"), ("fallocate2", "ext4-6.16/s0")];
const STALE: f64 = 0.15;

/// Counts atomic read-modify-writes, too.
const CHANGES: &str = "--collect-bus=yes";

/// Functions that are not counted for simulated cores, which have separate costs for them: writing
/// to a device, where valgrind counts an instruction for each byte of a large copy, and the
/// checksum of a bitmap, whose instructions differ between processors. A row with each is sampled,
/// to notice renamed functions. The last option turns collecting off at the start.
const NOT_CODE: [&str; 3] = [
    "--toggle-collect=<nextent_device::memory::MemoryDevice?as*BlockDevice>::write_at",
    "--toggle-collect=nextent_historical::allocator::group::sum",
    "--collect-atstart=yes",
];

/// The result of a check.
pub(crate) enum Outcome {
    /// All are within their bounds; their number.
    Good(usize),
    /// Counting is impossible; the missing requirement.
    Skipped(&'static str),
}

/// Counts the recorded operations; `record` writes new bounds.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let done = match args {
        [] => check(),
        [word] if word == "record" => record(),
        [word] if word == "simulate" => simulate(),
        _ => Err("usage: cargo xtask instructions [record | simulate]".into()),
    };
    match done? {
        Outcome::Good(count) => println!("instructions: {count} within their bounds"),
        Outcome::Skipped(what) => println!("skipped: no {what}"),
    }
    Ok(())
}

/// Counts the recorded operations.
pub(crate) fn check() -> Result<Outcome, String> {
    let text = std::fs::read_to_string(root().join(BOUNDS)).map_err(|error| error.to_string())?;
    let bounds = parse::<1>(&text)?;
    if !has("valgrind") {
        return Ok(Outcome::Skipped("valgrind"));
    }
    let program = build()?;
    let mut over = Vec::new();
    for (workload, design, [bound]) in &bounds {
        let found = per_operation(&program, workload, design)?;
        let word = if found <= *bound { "ok" } else { "OVER" };
        println!("{workload:<12} {design:<12} {found:>10.1} of {bound:>8.0} {word}");
        if found > *bound {
            over.push(format!("{workload} {design} {found:.1} > {bound}"));
        }
    }
    if !over.is_empty() {
        return Err(format!("more instructions than {BOUNDS} allows: {}", over.join(", ")));
    }
    let text =
        std::fs::read_to_string(root().join(SIMULATED)).map_err(|error| error.to_string())?;
    let table = parse::<2>(&text)?;
    for sample in SAMPLED {
        let row = table.iter().find(|(workload, design, _)| (*workload, *design) == sample);
        let (workload, design, said) = row.ok_or(format!("{SIMULATED}: no row {sample:?}"))?;
        let found = charged(&program, workload, design)?;
        for ((found, said), what) in found.into_iter().zip(said).zip(["", "changes"]) {
            println!(
                "{workload:<12} {design:<12} {found:>10.1} where {said:>8} are charged {what}"
            );
            let is_fresh = (found / said - 1.0).abs() <= STALE;
            if !is_fresh {
                let text = "is of older code: cargo xtask instructions simulate";
                return Err(format!("{SIMULATED}: {workload} {design}: {text}"));
            }
        }
    }
    Ok(Outcome::Good(bounds.len() + SAMPLED.len()))
}

fn record() -> Result<Outcome, String> {
    if !has("valgrind") {
        return Ok(Outcome::Skipped("valgrind"));
    }
    let program = build()?;
    let path = root().join(BOUNDS);
    let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let mut lines: Vec<String> =
        text.lines().filter(|line| line.starts_with('#')).map(str::to_owned).collect();
    for (workload, design) in RECORDED {
        let found = per_operation(&program, workload, design)?;
        lines.push(format!("{workload} {design} {:.0}", (found * MARGIN).ceil()));
    }
    println!("{}", lines.join("\n"));
    std::fs::write(&path, lines.join("\n") + "\n").map_err(|error| error.to_string())?;
    Ok(Outcome::Good(RECORDED.len()))
}

/// Counts the instructions that `nextent-lab simulate` charges for code, and writes its table.
fn simulate() -> Result<Outcome, String> {
    if !has("valgrind") {
        return Ok(Outcome::Skipped("valgrind"));
    }
    let program = build()?;
    let path = root().join(SIMULATED);
    let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let rows: Vec<usize> = (0..lines.len()).filter(|at| !lines[*at].starts_with('#')).collect();
    let (next, done) = (Mutex::new(rows.iter()), Mutex::new(Vec::new()));
    let take = || next.lock().ok().and_then(|mut next| next.next().copied());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(at) = take() {
                    let row = counted(&program, &lines[at]);
                    println!("{}", row.as_ref().unwrap_or_else(|text| text));
                    if let Ok(mut done) = done.lock() {
                        done.push((at, row));
                    }
                }
            });
        }
    });
    for (at, row) in done.into_inner().unwrap_or_default() {
        lines[at] = row?;
    }
    std::fs::write(&path, lines.join("\n") + "\n").map_err(|error| error.to_string())?;
    Ok(Outcome::Good(rows.len()))
}

/// A row of that table, counted again.
fn counted(program: &Path, row: &str) -> Result<String, String> {
    let words: Vec<&str> = row.split_whitespace().collect();
    let [workload, design, ..] = words[..] else {
        return Err(format!("{SIMULATED}: {row}: a workload and a design expected"));
    };
    let [instructions, changes] = charged(program, workload, design)?;
    Ok(format!("{workload} {design} {instructions:.0} {changes:.1}"))
}

/// Instructions of an operation for that table, and the atomic changes among them.
fn charged(program: &Path, workload: &str, design: &str) -> Result<[f64; 2], String> {
    // Operations of churn are long, and commits come in between anyway. The simulator runs the same
    // operations to count those of its accesses (`lab/sim/driver/src/instructions.rs`).
    let spans = if workload == "churn" { [300, 1300] } else { [4000, 12000] };
    let options = [&NOT_CODE[..], &[CHANGES]].concat();
    let [few, many] =
        spans.map(|operations| count::<2>(program, workload, design, operations, &options));
    Ok(each(few?, many?, spans))
}

/// The cost of one operation, from two counts of `spans` operations.
fn each<const N: usize>(few: [i64; N], many: [i64; N], spans: [u64; 2]) -> [f64; N] {
    std::array::from_fn(|at| (many[at] - few[at]) as f64 / (spans[1] - spans[0]) as f64)
}

/// A row: a workload, a design, and its numbers.
type Row<'a, const N: usize> = (&'a str, &'a str, [f64; N]);

/// Parses lines with a workload, a design and `N` numbers.
fn parse<const N: usize>(text: &str) -> Result<Vec<Row<'_, N>>, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines
        .map(|line| {
            let wrong = || format!("{line}: a workload, a design and {N} numbers expected");
            let mut words = line.split_whitespace();
            let (workload, design) = words.next().zip(words.next()).ok_or_else(wrong)?;
            let numbers: Result<Vec<f64>, _> = words.map(str::parse).collect();
            let numbers = numbers.ok().and_then(|numbers| numbers.try_into().ok());
            Ok((workload, design, numbers.ok_or_else(wrong)?))
        })
        .collect()
}

fn build() -> Result<PathBuf, String> {
    let args = ["build", "--release", "--quiet", "-p", "nextent-bench", "--no-default-features"];
    let built = cargo(args.iter().chain(&["--example", "fixed"])).status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("the example `fixed` of nextent-bench does not build".into());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| root().join("target"), PathBuf::from);
    Ok(target.join("release/examples/fixed"))
}

fn per_operation(program: &Path, workload: &str, design: &str) -> Result<f64, String> {
    let [few, many] =
        OPERATIONS.map(|operations| count::<1>(program, workload, design, operations, &[]));
    let [each] = each(few?, many?, OPERATIONS);
    Ok(each)
}

/// Instructions of all threads of one run, and further counts by `options` of callgrind.
fn count<const N: usize>(
    program: &Path,
    workload: &str,
    design: &str,
    operations: u64,
    options: &[&str],
) -> Result<[i64; N], String> {
    let program = program.display().to_string();
    let operations = operations.to_string();
    let tool = ["--tool=callgrind", "--callgrind-out-file=/dev/null", "--error-exitcode=9"];
    let what = [&*program, workload, design, &operations];
    let args = tool.iter().chain(options).chain(&what).copied();
    let mut run = command("valgrind", args);
    // The memory of an image comes zeroed from the system. Otherwise the history of the heap would
    // decide whether it must be zeroed.
    run.env("MALLOC_MMAP_THRESHOLD_", "8192");
    let output = run.output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let collected = text.lines().find_map(|line| line.split_once("Collected : "));
    let numbers = collected.and_then(|(_, numbers)| {
        let numbers: Result<Vec<i64>, _> = numbers.split_whitespace().map(str::parse).collect();
        numbers.ok()?.try_into().ok()
    });
    numbers.filter(|_| output.status.success()).ok_or_else(|| {
        format!("{workload} {design}: {}", text.lines().last().unwrap_or("valgrind said nothing"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read() {
        let found = parse("# why\n\nfallocate2 nextent 300\n").expect("it is good");
        assert_eq!(found, [("fallocate2", "nextent", [300.0])]);
        assert!(parse::<1>("fallocate2 300").is_err() && parse::<1>("a b c").is_err());
        assert_eq!(parse("a b 3 4.5"), Ok(vec![("a", "b", [3.0, 4.5])]));
        assert!(parse::<1>("a b 3 4").is_err() && parse::<2>("a b 3").is_err());
    }

    #[test]
    fn the_cost_of_an_operation_is_that_of_further_operations() {
        assert_eq!(each([100, 7], [300, 9], [10, 20]), [20.0, 0.2]);
    }
}
