//! `bench`: runs a workload, prints a table, writes figures and plots.

use crate::failure::{Failure, Result, complain};
use crate::{output, units};
use indicatif::{ProgressBar, ProgressStyle};
use nextent_bench::{Plan, Report, Request, measure};
use nextent_num::to_u64;
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{Arc, Duration};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The exit code after ^C: 128 and the signal's number.
const INTERRUPTED: u8 = 130;

const HELP: &str = "\
Examples:
  nextent-lab bench create --threads 1,2,4 --target engine --target dir:/mnt
  nextent-lab bench fallocate2 --design ext3-2002,ext4-6.17,nextent --threads 1,2

Exit status:
  0    All runs succeeded.
  1    A run failed, or its image was damaged afterwards.
  2    The arguments cannot be used.
  130  The run was interrupted; the figures until then are shown.";

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Args {
    /// fallocate2, fallocate1, churn, create, unlink, append, read, stat, frag, dbench, handles,
    /// fsync, dio-overwrite or dio-rewrite
    pub(crate) workload: String,
    /// The library (engine) or a mounted directory (dir:PATH); may be repeated [default: engine]
    #[arg(long = "target", value_name = "engine|dir:PATH")]
    pub(crate) targets: Vec<String>,
    /// Designs of the library, see `nextent-lab designs` [default: nextent]
    #[arg(long = "design", value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) designs: Vec<String>,
    /// Numbers of threads
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1")]
    pub(crate) threads: Vec<usize>,
    /// Seconds timed in each run, after a fifth as many of warm-up
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// Rounds; the figures are medians
    #[arg(long, value_name = "R", default_value_t = 3)]
    pub(crate) repeat: usize,
    /// Size of the fresh image in memory [default: 8g, more if the workload needs it]
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    pub(crate) image_size: Option<u64>,
    /// Use this image instead; it is created if it does not exist
    #[arg(long, value_name = "PATH")]
    pub(crate) image: Option<PathBuf>,
    /// Pin each thread to a core of its own
    #[arg(long)]
    pub(crate) pin: bool,
    /// Show lock statistics, counted in a separate round
    #[arg(long)]
    pub(crate) lockstat: bool,
    /// churn: all threads work in one directory; fallocate2, fallocate1: one thread creates all
    /// files in one directory
    #[arg(long)]
    pub(crate) shared: bool,
    /// dbench: the load file
    #[arg(long, value_name = "FILE")]
    pub(crate) loadfile: Option<PathBuf>,
    /// How the locks of historical designs wait: sleep (default) or spin
    #[arg(long, value_name = "sleep|spin")]
    pub(crate) lock_kind: Option<String>,
    /// dio-overwrite, dio-rewrite: bytes of a write [default: 4k]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = units::bytes)]
    pub(crate) bs: Vec<u64>,
    /// dio-overwrite, dio-rewrite: writes in flight of each thread, as fio's iodepth
    /// [default: 1, blocking calls]
    #[arg(long, value_name = "D")]
    pub(crate) depth: Option<usize>,
    /// Delay each answer of the library's device by this time, as 100us
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    pub(crate) latency: Option<Duration>,
    /// frag, append, fsync, dio-*: the size of files [default: 1g, 16m, 16m, 1g]
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    pub(crate) file_size: Option<u64>,
    /// Write the figures as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Draw operations a second and thread against threads
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

/// `nextent-lab bench`.
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
    output::check(&[&args.json, &args.plot])?;
    let interrupted = interrupt_flag()?;
    let bar = progress_bar(plan.runs());
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
        output::write(path, &format!("{:#}\n", report.to_json()))?;
    }
    if let Some(path) = plot {
        output::write(path, &report.to_svg())?;
    }
    for failure in report.failures() {
        complain(&failure.to_string());
    }
    Ok(match (report.failures().is_empty(), report.is_interrupted()) {
        (false, _) => ExitCode::FAILURE,
        (true, true) => ExitCode::from(INTERRUPTED),
        (true, false) => ExitCode::SUCCESS,
    })
}

/// A flag that the first ^C sets. The second one ends the program at once.
fn interrupt_flag() -> Result<Arc<AtomicBool>> {
    let pressed = Arc::new(AtomicBool::new(false));
    let handlers = Arc::clone(&pressed);
    let set = ctrlc::set_handler(move || {
        if handlers.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(INTERRUPTED));
        }
    });
    set.map_err(|error| Failure::new(error.to_string()))?;
    Ok(pressed)
}

fn progress_bar(runs: usize) -> Option<ProgressBar> {
    let bar = std::io::stderr().is_terminal().then(|| ProgressBar::new(to_u64(runs)))?;
    if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {pos}/{len} {msg} {elapsed}") {
        bar.set_style(style);
    }
    Some(bar)
}
