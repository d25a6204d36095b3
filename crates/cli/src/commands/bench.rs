//! `bench` and `designs`: the lab's words, figures and exit codes.

use crate::failure::{Failure, Result, complain, say};
use crate::show;
use crate::size;
use indicatif::{ProgressBar, ProgressStyle};
use nextent_lab::{Design, Plan, Report, Request, designs, measure};
use nextent_num::to_u64;
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{Arc, Duration};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The user stopped it: 128 and the signal's number.
const STOPPED: u8 = 130;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// fallocate2, fallocate1, churn, create, unlink, append, read, stat, frag, dbench, handles,
    /// fsync, dio-overwrite or dio-rewrite
    pub(crate) workload: String,
    /// The library (engine) or a mounted directory (dir:PATH); may be repeated [default: engine]
    #[arg(long = "target", value_name = "engine|dir:PATH")]
    pub(crate) targets: Vec<String>,
    /// Designs of the library, see `nextent designs` [default: nextent]
    #[arg(long = "design", value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) designs: Vec<String>,
    /// Numbers of threads
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1")]
    pub(crate) threads: Vec<usize>,
    /// How long each run is timed, after a fifth of it for warming up
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// Rounds; the figures are medians
    #[arg(long, value_name = "R", default_value_t = 3)]
    pub(crate) repeat: usize,
    /// Size of the fresh image in memory [default: 8g, more if the workload needs it]
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    pub(crate) image_size: Option<u64>,
    /// Use this image instead; one that does not exist is made
    #[arg(long, value_name = "PATH")]
    pub(crate) image: Option<PathBuf>,
    /// Keep each thread on a core of its own
    #[arg(long)]
    pub(crate) pin: bool,
    /// Show what locks did, counted in a round of its own
    #[arg(long)]
    pub(crate) lockstat: bool,
    /// churn: all threads in one directory; fallocate2, fallocate1: one makes all files, in one
    #[arg(long)]
    pub(crate) shared: bool,
    /// dbench: the load file
    #[arg(long, value_name = "FILE")]
    pub(crate) loadfile: Option<PathBuf>,
    /// How locks of designs of the past wait: sleep (default) or spin
    #[arg(long, value_name = "sleep|spin")]
    pub(crate) lock_kind: Option<String>,
    /// dio-overwrite, dio-rewrite: bytes of a write [default: 4k]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = size::bytes)]
    pub(crate) bs: Vec<u64>,
    /// dio-overwrite, dio-rewrite: writes in flight of each thread through a
    /// queue, as the iodepth of fio [default: 1, calls that wait]
    #[arg(long, value_name = "D")]
    pub(crate) depth: Option<usize>,
    /// Let the library's device answer so much later, as 100us
    #[arg(long, value_name = "TIME", value_parser = latency)]
    pub(crate) latency: Option<Duration>,
    /// frag, append, fsync, dio-*: how large files grow or are [default: 1g, 16m, 16m, 1g]
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    pub(crate) file_size: Option<u64>,
    /// Write the figures for programs
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Draw operations a second and thread against threads
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Designs {
    /// Machine-readable
    #[arg(long)]
    pub(crate) json: bool,
}

/// `nextent bench`.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let request = Request {
        workload: args.workload,
        targets: args.targets,
        designs: args.designs,
        threads: args.threads,
        seconds: args.seconds,
        repeat: args.repeat,
        image_size: args.image_size,
        image: args.image,
        pin: args.pin.then_some(0),
        lockstat: args.lockstat,
        shared: args.shared,
        loadfile: args.loadfile,
        file_size: args.file_size,
        lock_kind: args.lock_kind,
        bs: args.bs,
        depth: args.depth,
        latency: args.latency,
    };
    let plan = Plan::new(&request)?;
    // Found out now, not when all has been measured.
    for path in [&args.json, &args.plot].into_iter().flatten() {
        save(path, "")?;
    }
    let interrupted = watch()?;
    let bar = bar(plan.runs());
    let stop = || interrupted.load(Ordering::Relaxed);
    let report = measure(&plan, &stop, &mut |number, text| {
        if let Some(bar) = &bar {
            bar.set_position(to_u64(number));
            bar.set_message(text.to_owned());
        }
    });
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    show(&report?, args.json.as_deref(), args.plot.as_deref())
}

fn show(report: &Report, json: Option<&Path>, plot: Option<&Path>) -> Result<ExitCode> {
    write!(std::io::stdout(), "{report}")?;
    if let Some(path) = json {
        save(path, &format!("{:#}\n", report.to_json()))?;
    }
    if let Some(path) = plot {
        save(path, &report.to_svg())?;
    }
    for failure in report.failures() {
        complain(&failure.to_string());
    }
    Ok(match (report.failures().is_empty(), report.is_interrupted()) {
        (false, _) => ExitCode::FAILURE,
        (true, true) => ExitCode::from(STOPPED),
        (true, false) => ExitCode::SUCCESS,
    })
}

fn save(path: &Path, text: &str) -> Result<()> {
    let written = std::fs::write(path, text);
    written.map_err(|error| Failure::usage(format!("{}: {error}", show::path(path))))
}

/// True once the user has pressed ^C; pressed again, it ends the program at once.
fn watch() -> Result<Arc<AtomicBool>> {
    let pressed = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&pressed);
    let set = ctrlc::set_handler(move || {
        if theirs.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(STOPPED));
        }
    });
    set.map_err(|error| Failure::new(error.to_string()))?;
    Ok(pressed)
}

fn bar(runs: usize) -> Option<ProgressBar> {
    let bar = std::io::stderr().is_terminal().then(|| ProgressBar::new(to_u64(runs)))?;
    if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {pos}/{len} {msg} {elapsed}") {
        bar.set_style(style);
    }
    Some(bar)
}

impl From<nextent_lab::Failure> for Failure {
    fn from(failure: nextent_lab::Failure) -> Self {
        match failure {
            nextent_lab::Failure::Usage(text) => Self::usage(text),
            nextent_lab::Failure::Broken(text) => Self::new(text),
        }
    }
}

/// `nextent designs`.
pub(crate) fn list(args: &Designs) -> Result<()> {
    let all = designs::all();
    let default = Design::default();
    if args.json {
        let all = all.iter().map(|design| {
            serde_json::json!({
                "name": design.to_string(),
                "date": design.date,
                "about": design.about,
                "source": design.source,
                "gate": design.gate_option(),
                "default": *design == default,
            })
        });
        say!("{:#}", all.collect::<serde_json::Value>());
        return Ok(());
    }
    let names: Vec<String> = all.iter().map(Design::to_string).collect();
    let gates = designs::gates();
    let options = gates.iter().map(|gate| gate.0.len() + 1);
    let width = names.iter().map(String::len).chain(options).max().unwrap_or(0);
    for (name, design) in names.iter().zip(&all) {
        let mark = if *design == default { " (default)" } else { "" };
        let note = note(name).map_or(design.about.to_owned(), ToOwned::to_owned);
        say!("{name:<width$}  {:<7}  {note}{mark}", design.date);
    }
    say!("\nThe journal's gate of each is of its date; behind any name may stand another:");
    for (option, date, about, presets) in gates {
        say!("{:<width$}  {date:<7}  {about} ({presets})", format!("/{option}"));
    }
    Ok(())
}

/// A time with its unit.
fn latency(text: &str) -> std::result::Result<Duration, String> {
    let units = [("us", 1_000), ("ms", 1_000_000), ("ns", 1), ("s", 1_000_000_000)];
    let parse = |(unit, nanos): (&str, u64)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(Duration::from_nanos(number.checked_mul(nanos)?))
    };
    units.into_iter().find_map(parse).ok_or_else(|| "a number and us, ms or s, as 100us".to_owned())
}

/// What an option changes.
fn note(name: &str) -> Option<&'static str> {
    match name.split_once('/')?.1 {
        "s0" => Some("  groups searched one after another (mb_optimize_scan=0)"),
        "s1" => Some("  groups searched by order (mb_optimize_scan=1)"),
        "acqrel" => Some("  the goal loaded with acquire, stored with release"),
        _ => None,
    }
}
