//! Runs the fuzz targets: `cargo xtask fuzz [TARGET] [SECONDS]`.
//!
//! They are libFuzzer programs in the layout of cargo-fuzz, which can run them, too. This task
//! builds them with the stable compiler: coverage comes from LLVM's pass, and safe code needs no
//! sanitizer.

use crate::shell::{command, root};
use std::path::PathBuf;

const TARGETS: [&str; 4] = ["image", "directory", "extents", "journal"];
const SECONDS: u64 = 60;

/// The compiler flags of cargo-fuzz, without a sanitizer.
const FLAGS: [&str; 7] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
    "-Cdebug-assertions",
];

/// Runs one target, or all, for so many seconds each.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let named = args.first().filter(|name| TARGETS.contains(&name.as_str()));
    let seconds = match args.get(usize::from(named.is_some())) {
        None => SECONDS,
        Some(text) => text
            .parse()
            .map_err(|_| format!("usage: cargo xtask fuzz [{}] [SECONDS]", TARGETS.join("|")))?,
    };
    let chosen: Vec<&str> = match named {
        Some(name) => vec![name],
        None => TARGETS.to_vec(),
    };
    let built = build()?;
    for target in chosen {
        println!("--- {target}, {seconds} s");
        one(&built, target, seconds)?;
    }
    Ok(())
}

/// Builds all targets; their directory.
fn build() -> Result<PathBuf, String> {
    let version = command("rustc", ["-vV"]).output().map_err(|error| error.to_string())?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or("rustc does not say its host")?;
    let args = ["build", "--release", "--bins", "--manifest-path", "fuzz/Cargo.toml"];
    let target = root().join("target/fuzz");
    // With an explicit target, build scripts and macros do not get the flags.
    let mut cargo = crate::shell::cargo(args.iter().chain(&["--target", host]));
    cargo.env("RUSTFLAGS", FLAGS.join(" ")).env("CARGO_TARGET_DIR", &target);
    match cargo.status() {
        Ok(status) if status.success() => Ok(target.join(host).join("release")),
        _ => Err("the fuzz targets do not build".into()),
    }
}

fn one(built: &std::path::Path, target: &str, seconds: u64) -> Result<(), String> {
    let corpus = root().join("fuzz/corpus").join(target);
    let artifacts = root().join("fuzz/artifacts").join(target);
    for dir in [&corpus, &artifacts] {
        std::fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    }
    let program = built.join(target).display().to_string();
    let limits = [
        format!("-max_total_time={seconds}"),
        format!("-artifact_prefix={}/", artifacts.display()),
        "-timeout=60".into(),
        "-rss_limit_mb=2048".into(),
        "-max_len=512".into(),
        // An input shorter than one patch has no effect.
        "-len_control=0".into(),
        corpus.display().to_string(),
    ];
    match command(&program, limits).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{target}: {status}; the input is in {}", artifacts.display())),
        Err(error) => Err(format!("{target}: {error}")),
    }
}
