//! Random comparisons with other programs: `cargo xtask differential`.
//!
//! | part | this program | peer | compared |
//! |---|---|---|---|
//! | `mkfs` | `nextent mkfs` with random sizes and options | mke2fs | acceptance, geometry by dumpe2fs, a mount by the kernel |
//! | [`copies`] | random commands on images | coreutils, GNU tar, bsdtar in a directory | exit codes, trees with all attributes |
//!
//! `e2fsck -fn` must find no errors in this program's images. Each part has one table of allowed
//! differences: [`exceptions`] and `copies/exceptions.rs`. Equal seeds give equal cases. Without
//! the name of a part, `mkfs` gets a sixth of the time.

mod cases;
mod copies;
mod exceptions;
mod judge;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::shell::{cargo, command, has, shown, target_dir};
use cases::{Case, Rng};
use judge::{Judge, Verdict};

const SECONDS: u64 = 60;
const SEED: u64 = 1;
/// One of so many cases is mounted.
const MOUNTED: u64 = 6;
const USAGE: &str = "usage: cargo xtask differential [mkfs | copies] [--minutes N | --seconds N] \
    [--seed SEED] [--case N]";

/// The slice of `mkfs` in `cargo xtask test`: cases and time limit.
const SLICE: (u64, Duration) = (100, Duration::from_secs(10));
/// The same for copies.
const COPIES: (u64, Duration) = (150, Duration::from_secs(20));

/// The first cases of the first seed, with the program that the tests have built.
pub(crate) fn slice() -> Result<(), String> {
    mkfs(&debug_program(), SLICE.1, SLICE.0, SEED)
}

/// The first cases of copies of the first seed.
pub(crate) fn slice_of_copies() -> Result<(), String> {
    copies::run(&debug_program(), (COPIES.1, COPIES.0), (SEED, 0))
}

/// The parsed arguments.
struct Asked {
    part: Option<String>,
    limit: Duration,
    seed: u64,
    case: Option<u64>,
}

fn asked(args: &[String]) -> Option<Asked> {
    let limit = Duration::from_secs(SECONDS);
    let mut asked = Asked { part: None, limit, seed: SEED, case: None };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut number = || args.next()?.parse::<u64>().ok();
        match arg.as_str() {
            "mkfs" | "copies" if asked.part.is_none() => asked.part = Some(arg.clone()),
            "--minutes" => asked.limit = Duration::from_secs(number()? * 60),
            "--seconds" => asked.limit = Duration::from_secs(number()?),
            "--seed" => asked.seed = number()?,
            "--case" => asked.case = Some(number()?),
            _ => return None,
        }
    }
    Some(asked)
}

/// Runs the comparisons that `args` name.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let Asked { part, limit, seed, case } = asked(args).ok_or(USAGE)?;
    if let Some(done) = in_own_namespace(args) {
        return done;
    }
    let cases = if case.is_some() { 1 } else { u64::MAX };
    let program = program()?;
    let of_copies = |limit| copies::run(&program, (limit, cases), (seed, case.unwrap_or(0)));
    match (part.as_deref(), case) {
        (Some("mkfs"), None) => mkfs(&program, limit, cases, seed),
        (Some("mkfs"), Some(_)) => Err(USAGE.into()),
        (Some(_), _) | (None, Some(_)) => of_copies(limit),
        (None, None) => {
            let (first, second) =
                (mkfs(&program, limit / 6, cases, seed), of_copies(limit * 5 / 6));
            first.and(second)
        }
    }
}

/// Runs this command again in a mount namespace of its own, if it may make one. A namespace that
/// another process makes copies all mounts of its parent; the kernel would then write an image only
/// after that process has ended, too.
fn in_own_namespace(args: &[String]) -> Option<Result<(), String>> {
    const INSIDE: &str = "NEXTENT_XTASK_NAMESPACE";
    if std::env::var_os(INSIDE).is_some() || !has("unshare") {
        return None;
    }
    let own = std::env::current_exe().ok()?;
    let unshared = || command("unshare", ["--mount", "--"]);
    if !unshared().arg("true").status().is_ok_and(|status| status.success()) {
        return None; // not root
    }
    let status = unshared().arg(own).arg("differential").args(args).env(INSIDE, "1").status();
    Some(match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("a comparison failed".to_owned()),
        Err(error) => Err(format!("unshare: {error}")),
    })
}

/// Builds the program; its path.
fn program() -> Result<PathBuf, String> {
    if !shown(cargo(["build", "--quiet", "-p", "nextent-cli"])).success {
        return Err("the program did not build".into());
    }
    Ok(debug_program())
}

fn debug_program() -> PathBuf {
    target_dir().join("debug/nextent")
}

fn mkfs(program: &Path, limit: Duration, cases: u64, seed: u64) -> Result<(), String> {
    for tool in ["mke2fs", "e2fsck", "dumpe2fs"] {
        if !has(tool) {
            println!("skipped: no {tool}");
            return Ok(());
        }
    }
    let judge = Judge::new(program)?;
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
