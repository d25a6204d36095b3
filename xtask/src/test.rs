//! Runs everything that CI runs, also after failures. The last line has the counts: tests as
//! reported by their runs, and one for each other check (format, tidy, clippy, a failed build).
//!
//! Steps follow each other, but those that are good on a loaded machine run beside the tests, which
//! often leave a core idle: counted instructions, models, packages, documentation.

use crate::beside::Beside;
use crate::instructions::{self, Outcome};
use crate::shell::{Finished, cargo, command, root, shown, target_dir, watched};
use crate::{demo, differential, publish, setup, tidy};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

/// Crates with models under shuttle, and their directories.
const SHUTTLE: [(&str, &str); 6] = [
    ("nextent-sync", "crates/sync"),
    ("nextent-device", "crates/device"),
    ("nextent-store", "crates/store"),
    ("nextent", "crates/engine"),
    ("nextent-fuse", "crates/fuse"),
    ("nextent-historical", "lab/historical"),
];
/// Crates with models under loom.
const LOOM: [(&str, &str); 2] =
    [("nextent-sync", "crates/sync"), ("nextent-historical-loom", "lab/historical/loom")];
/// Arguments that select the packages without a library.
const PROGRAMS: [&str; 6] = ["-p", "nextent-cli", "-p", "nextent-lab", "-p", "xtask"];

#[derive(Default, Debug, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

#[derive(Default)]
struct Run {
    counts: Counts,
    /// A line for each step.
    table: Vec<String>,
    /// A line for each failure with its step, since the output of a step may be long.
    reasons: Vec<String>,
}

/// The argument for the steps beside the tests.
const BESIDE: &str = "beside";

/// Runs all steps; an error if one failed.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    match args {
        [] => all(),
        [part, report, skips] if part == BESIDE => beside(Path::new(report), Path::new(skips)),
        _ => Err("usage: cargo xtask test".into()),
    }
}

fn all() -> Result<(), String> {
    setup::oracles();
    let skips = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    let mut run = Run::default();
    run.component("fmt", "rustfmt", &["--all", "--check"]);
    run.check("tidy", tidy::run().map_err(|text| eprintln!("{text}")).is_ok());
    // With the features, which only add code: a second run would rebuild everything.
    let generate = "nextent-cli/generate,nextent-lab/generate";
    let every = ["--workspace", "--all-targets", "--features", generate, "--quiet"];
    run.component("clippy", "clippy", &[&every[..], &["--", "-D", "warnings"]].concat());
    let tests = ["--workspace", "--no-fail-fast"];
    // Two builds beside each other would wait for each other.
    let mut built = false;
    run.step("tests: build", |run| built = run.build(&tests));
    let own = std::env::current_exe().map_err(|error| error.to_string());
    let beside = own.and_then(|own| Beside::start(&own, &["test", BESIDE], skips.path()));
    if built {
        run.step("tests", |run| run.tests("tests", &tests, skips.path()));
    }
    run.examples("engine");
    run.demo();
    run.differential();
    run.take_report(beside.and_then(Beside::finish));
    run.take_skips(skips.path());
    for line in run.table.iter().chain(&run.reasons) {
        println!("{line}");
    }
    let Counts { passed, failed, skipped } = run.counts;
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { Ok(()) } else { Err("cargo xtask test: something failed".into()) }
}

/// The steps beside the tests.
fn beside(report: &Path, skips: &Path) -> Result<(), String> {
    let mut run = Run::default();
    // First, since its build is in a directory of its own: the tests, which start now, do not wait
    // for it.
    run.instructions();
    run.models("shuttle", &SHUTTLE, skips);
    run.models("loom", &LOOM, skips);
    run.publish();
    run.docs();
    std::fs::write(report, run.report().to_string()).map_err(|error| error.to_string())
}

impl Run {
    fn step(&mut self, name: &str, act: impl FnOnce(&mut Self)) {
        println!("--- {name}");
        let began = Instant::now();
        let before = self.counts.failed;
        act(self);
        let word = if self.counts.failed == before { "ok" } else { "FAILED" };
        self.table.push(format!("{name:<28} {word:<7} {:>6.1} s", began.elapsed().as_secs_f64()));
    }

    fn check(&mut self, name: &str, good: bool) {
        self.step(name, |run| if good { run.counts.passed += 1 } else { run.counts.failed += 1 });
    }

    /// Compares instructions with their bounds, if valgrind is installed.
    fn instructions(&mut self) {
        self.step("instructions", |run| match instructions::check() {
            Ok(Outcome::Good(count)) => run.counts.passed += count as u64,
            Ok(Outcome::Skipped(what)) => {
                println!("skipped: no {what}");
                run.counts.skipped += 1;
            }
            Err(text) => {
                eprintln!("{text}");
                run.reasons.push(format!("FAILED instructions: {text}"));
                run.counts.failed += 1;
            }
        });
    }

    /// The documentation, without a warning.
    fn docs(&mut self) {
        self.step("doc", |run| {
            let mut command = cargo(["doc", "--workspace", "--no-deps", "--quiet"]);
            command.env("RUSTDOCFLAGS", "-D warnings");
            if shown(command).success { run.counts.passed += 1 } else { run.counts.failed += 1 }
        });
    }

    /// The demonstration of the README, without the laboratory.
    fn demo(&mut self) {
        self.step("demo", |run| match demo::test() {
            Ok(()) => run.counts.passed += 1,
            Err(text) => {
                eprintln!("{text}");
                run.reasons.push(format!("FAILED demo: {text}"));
                run.counts.failed += 1;
            }
        });
    }

    /// Packages of the product's crates, built and checked as for the registry.
    fn publish(&mut self) {
        self.step("publish", |run| match publish::check() {
            Ok(outcome) => {
                run.counts.passed += 1;
                if let publish::Outcome::Packaged = outcome {
                    println!("skipped: the registry's checks, without a network");
                }
            }
            Err(text) => {
                eprintln!("{text}");
                run.reasons.push(format!("FAILED publish: {}", text.lines().next().unwrap_or("")));
                run.counts.failed += 1;
            }
        });
    }

    /// Compares the first cases of one seed: random volumes with mke2fs, random copies with other
    /// programs.
    fn differential(&mut self) {
        type Part = (&'static str, fn() -> Result<(), String>);
        let parts: [Part; 2] = [
            ("differential: mkfs", differential::slice),
            ("differential: copies", differential::slice_of_copies),
        ];
        for (name, part) in parts {
            self.step(name, |run| match part() {
                Ok(()) => run.counts.passed += 1,
                Err(text) => {
                    eprintln!("{text}");
                    run.reasons.push(format!("FAILED {name}: {text}"));
                    run.counts.failed += 1;
                }
            });
        }
    }

    /// Runs a cargo command whose component may have to be installed.
    fn component(&mut self, name: &str, package: &str, args: &[&str]) {
        self.step(name, |run| {
            if !setup::component(name, package) {
                println!("skipped: no {package}");
                run.counts.skipped += 1;
            } else if shown(cargo([name].iter().chain(args))).success {
                run.counts.passed += 1;
            } else {
                run.counts.failed += 1;
            }
        });
    }

    /// Builds tests. A build may be silent for longer than a stuck test, so it is not watched.
    fn build(&mut self, args: &[&str]) -> bool {
        let built = shown(cargo(["test", "--no-run"].iter().chain(args)));
        if !built.success {
            self.add(&built);
        }
        built.success
    }

    /// Runs tests that are built.
    fn tests(&mut self, name: &str, args: &[&str], skips: &Path) {
        let mut command = cargo(["test"].iter().chain(args));
        command.env("NEXTENT_SKIPS", skips).env("CARGO_TERM_COLOR", "never");
        let finished = watched(command);
        let failed = failures(&finished.stdout);
        self.reasons.extend(failed.iter().map(|test| format!("FAILED {name}: {test}")));
        if finished.stuck {
            self.reasons.push(format!("FAILED {name}: it was stuck, see above"));
        }
        self.add(&finished);
    }

    /// Runs each example of a crate without arguments; its exit code decides. The tests have built
    /// them; building them alone, with fewer features, would take a minute.
    fn examples(&mut self, dir: &str) {
        for name in examples_of(&root().join("crates").join(dir).join("examples")) {
            let program = target_dir().join("debug/examples").join(&name);
            let good = |run: &mut Self| {
                let good = shown(command(&program.display().to_string(), [""; 0])).success;
                if good { run.counts.passed += 1 } else { run.counts.failed += 1 }
            };
            self.step(&format!("example: {name}"), good);
        }
    }

    /// Runs the models of all `packages` under one checker.
    fn models(&mut self, checker: &str, packages: &[(&str, &str)], skips: &Path) {
        let feature = format!("model-{checker}");
        let mut step = |name: &str, args: &[&str]| {
            let name = format!("{checker}: {name}");
            self.step(&name, |run| {
                if run.build(args) {
                    run.tests(&name, args, skips);
                }
            });
        };
        // The whole workspace is selected, because the dependencies then have the features with
        // which the tests have built them. Otherwise most would be built again.
        let on: Vec<_> = packages.iter().map(|(name, _)| format!("{name}/{feature}")).collect();
        let on = on.join(",");
        let tests = packages.iter().flat_map(|(_, dir)| {
            let tests = tests_of(&root().join(dir).join("tests"), &feature);
            tests.into_iter().flat_map(|test| ["--test".to_owned(), test])
        });
        let tests: Vec<String> = tests.collect();
        let base = ["--workspace", "--no-fail-fast", "--features", &*on];
        step(
            "tests",
            &base.into_iter().chain(tests.iter().map(String::as_str)).collect::<Vec<_>>(),
        );
        let modules = packages.iter().map(|(package, dir)| {
            (*package, modules_of(&root().join(dir).join("src"), "", &feature))
        });
        let modules: Vec<_> = modules.filter(|(_, modules)| !modules.is_empty()).collect();
        if modules.is_empty() {
            return;
        }
        // Only libraries with models are built for tests. The programs have no library, but nearly
        // all dependencies.
        let on: Vec<_> = modules.iter().map(|(name, _)| format!("{name}/{feature}")).collect();
        let on = on.join(",");
        let mut args = vec!["--lib", "--no-fail-fast", "--features", &*on];
        args.extend(PROGRAMS);
        args.extend(modules.iter().flat_map(|(name, _)| ["-p", name]));
        args.push("--");
        let filters = modules.iter().flat_map(|(_, modules)| modules);
        let filters: Vec<_> = filters.map(|module| format!("{module}::")).collect();
        args.extend(filters.iter().map(String::as_str));
        step("modules", &args);
    }

    fn add(&mut self, finished: &Finished) {
        let found = parse(&finished.stdout);
        self.counts.passed += found.passed;
        self.counts.skipped += found.skipped;
        // A run that failed without a failed test has not built or has crashed.
        self.counts.failed += found.failed.max(u64::from(!finished.success));
    }

    /// The results as another process reads them.
    fn report(&self) -> serde_json::Value {
        let Counts { passed, failed, skipped } = self.counts;
        serde_json::json!({
            "counts": [passed, failed, skipped],
            "table": self.table,
            "reasons": self.reasons,
        })
    }

    /// Adds the results of the steps beside the tests.
    fn take_report(&mut self, report: Result<serde_json::Value, String>) {
        let report = report.unwrap_or_else(|text| {
            let reason = format!("FAILED steps beside the tests: {text}");
            serde_json::json!({ "counts": [0, 1, 0], "table": [], "reasons": [reason] })
        });
        let count = |at: usize| report["counts"][at].as_u64();
        match (count(0), count(1), count(2)) {
            (Some(passed), Some(failed), Some(skipped)) => {
                self.counts.passed += passed;
                self.counts.failed += failed;
                self.counts.skipped += skipped;
            }
            _ => self.counts.failed += 1,
        }
        let lines = |name| {
            let lines = report[name].as_array().into_iter().flatten();
            lines.filter_map(|line| line.as_str().map(str::to_owned))
        };
        self.table.extend(lines("table"));
        self.reasons.extend(lines("reasons"));
    }

    /// Counts tests that noted a skip as skipped, not passed.
    fn take_skips(&mut self, path: &Path) {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let tests: BTreeSet<&str> =
            text.lines().filter_map(|line| line.split(':').next()).collect();
        for line in text.lines().collect::<BTreeSet<_>>() {
            println!("skipped {line}");
        }
        let moved = (tests.len() as u64).min(self.counts.passed);
        self.counts.passed -= moved;
        self.counts.skipped += moved;
    }
}

/// The names of the examples in a directory.
fn examples_of(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let files = entries.filter_map(Result::ok).map(|entry| entry.path());
    let mut names: Vec<String> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    names
}

/// The names of integration tests that exist only with a feature.
fn tests_of(dir: &Path, feature: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let condition = format!("#![cfg(feature = \"{feature}\")]");
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter(|entry| {
            std::fs::read_to_string(entry.path()).is_ok_and(|text| text.contains(&condition))
        })
        .filter_map(|entry| Some(entry.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    names
}

/// The paths of test modules that exist only with a feature.
fn modules_of(dir: &Path, path: &str, feature: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        let name = entry.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if entry.is_dir() {
            found.extend(modules_of(&entry, &format!("{path}{name}::"), feature));
            continue;
        }
        let own = matches!(name, "mod" | "lib" | "main");
        let parent = if own { path.to_owned() } else { format!("{path}{name}::") };
        let text = std::fs::read_to_string(&entry).unwrap_or_default();
        found.extend(declared(&text, feature).iter().map(|module| format!("{parent}{module}")));
    }
    found.sort();
    found
}

/// The modules that a file declares for tests with a feature.
fn declared<'t>(text: &'t str, feature: &str) -> Vec<&'t str> {
    let condition = format!("#[cfg(all(test, feature = \"{feature}\"))]");
    let after = text.split(&condition).skip(1);
    after
        .filter_map(|after| after.trim_start().strip_prefix("mod ")?.split([';', ' ']).next())
        .collect()
}

/// The failed tests in the output of Rust's test harness.
fn failures(output: &str) -> Vec<&str> {
    let test = |line| str::strip_prefix(line, "test ")?.strip_suffix(" ... FAILED");
    output.lines().filter_map(test).collect()
}

/// Adds up the last lines of Rust's test harness.
fn parse(output: &str) -> Counts {
    let mut counts = Counts::default();
    for line in output.lines() {
        let Some((_, rest)) = line.split_once("test result: ") else { continue };
        let number = |word: &str| {
            let part = rest.split([';', '.']).find(|part| part.trim().ends_with(word));
            part.and_then(|part| part.trim().split(' ').next()?.parse().ok()).unwrap_or(0)
        };
        counts.passed += number("passed");
        counts.failed += number("failed");
        counts.skipped += number("ignored");
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_found_by_their_condition() {
        let text = "mod a;\n#[cfg(all(test, feature = \"model-shuttle\"))]\nmod model;\nmod b;\n\
            #[cfg(all(test, not(feature = \"model-shuttle\")))]\nmod tests;";
        assert_eq!(declared(text, "model-shuttle"), ["model"]);
        assert_eq!(declared(text, "model-loom"), [""; 0]);
    }

    #[test]
    fn failed_tests_are_named() {
        let output = "test a::b ... ok\ntest a::c ... FAILED\ntest result: FAILED. 1 passed\n";
        assert_eq!(failures(output), ["a::c"]);
    }

    #[test]
    fn results_of_another_process_are_added() {
        let theirs = Run {
            counts: Counts { passed: 5, failed: 1, skipped: 2 },
            table: vec!["loom ok".into()],
            reasons: vec!["FAILED: two\nlines".into()],
        };
        let text = theirs.report().to_string();
        let mut run = Run::default();
        run.counts.passed = 1;
        run.take_report(serde_json::from_str(&text).map_err(|error| error.to_string()));
        assert_eq!(run.counts, Counts { passed: 6, failed: 1, skipped: 2 });
        assert_eq!((run.table.len(), &*run.reasons[0]), (1, "FAILED: two\nlines"));
        run.take_report(Err("it crashed".into()));
        run.take_report(Ok(serde_json::json!({ "counts": [1] })));
        assert_eq!(run.counts.failed, 3);
        assert!(run.reasons[1].ends_with("it crashed"), "{:?}", run.reasons);
    }

    #[test]
    fn closing_lines_are_summed() {
        let output = "running 2 tests\n\
            test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
            noise\n\
            test result: FAILED. 10 passed; 3 failed; 0 ignored; 0 measured; 5 filtered out\n";
        assert_eq!(parse(output), Counts { passed: 12, failed: 3, skipped: 1 });
        assert_eq!(parse("nothing"), Counts::default());
    }
}
