//! `fsck`: the exit codes are those of fsck(8).

use crate::failure::{Failure, Result, say};
use indicatif::{ProgressBar, ProgressStyle};
use nextent::check::{CheckOptions, CheckReport, Problem, Progress, Severity, check, peek};
use nextent_device::{BlockDevice, FileDevice, FileOptions};
use nextent_sync::Arc;
use serde_json::json;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

/// Errors are left.
const ERRORS_LEFT: u8 = 4;
/// The check could not be done.
const OPERATIONAL: u8 = 8;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Change nothing, which is what it does in any case
    #[arg(short)]
    pub(crate) n: bool,
    /// Check even if the image is marked clean
    #[arg(short)]
    pub(crate) force: bool,
    /// Machine-readable
    #[arg(long)]
    pub(crate) json: bool,
    /// The image
    pub(crate) image: PathBuf,
}

/// `nextent fsck`.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let name = args.image.display().to_string();
    let fail = |error: String| Failure::new(error).with_code(OPERATIONAL);
    let options = FileOptions::new().read_only(true);
    let device = FileDevice::open(&args.image, &options).map_err(|e| fail(e.to_string()))?;
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let named = |error: nextent::Error| fail(format!("{name}: cannot be checked: {error}"));
    if !args.force && !args.json {
        let state = peek(&*device, &CheckOptions::default()).map_err(named)?;
        if state.clean {
            let (files, blocks) = (state.totals.inodes_used, state.totals.blocks_used);
            let (inodes, all) = (state.totals.inodes, state.totals.blocks);
            say!("{name}: clean, {files}/{inodes} files, {blocks}/{all} blocks");
            return Ok(ExitCode::SUCCESS);
        }
    }
    let bar = Bar::new(args.json);
    let report = check(device, &CheckOptions::default(), &|progress| bar.tell(progress));
    bar.end();
    let report = report.map_err(named)?;
    if args.json {
        say!("{:#}", describe(&name, &report));
    } else {
        print(&name, &report)?;
    }
    Ok(ExitCode::from(if report.is_clean() { 0 } else { ERRORS_LEFT }))
}

/// What each pass looks at.
fn title(pass: u8) -> &'static str {
    match pass {
        0 => "superblock and journal",
        1 => "inodes, blocks, and sizes",
        2 => "directory structure",
        3 => "directory connectivity",
        4 => "reference counts",
        _ => "group summary information",
    }
}

fn print(name: &str, report: &CheckReport) -> Result<()> {
    for pass in 0..=5 {
        let here = || report.problems.iter().filter(move |problem| problem.pass == pass);
        if pass > 0 || here().next().is_some() {
            say!("Pass {pass}: {}", title(pass));
        }
        for problem in here() {
            say!("{problem}");
        }
    }
    if report.left_out > 0 {
        say!("... and {} more", report.left_out);
    }
    let totals = &report.totals;
    if !report.is_clean() {
        say!("\n{name}: not clean, {} errors", report.errors);
    }
    let fragmented = totals.fragmented as f64 * 100.0 / totals.inodes_used.max(1) as f64;
    say!(
        "{name}: {}/{} files ({fragmented:.1}% non-contiguous), {}/{} blocks",
        totals.inodes_used,
        totals.inodes,
        totals.blocks_used,
        totals.blocks
    );
    Ok(())
}

fn describe(name: &str, report: &CheckReport) -> serde_json::Value {
    let problem = |problem: &Problem| {
        json!({
            "pass": problem.pass,
            "error": problem.severity == Severity::Error,
            "code": problem.code,
            "group": problem.group.map(|n| n.0),
            "inode": problem.inode.map(|n| n.0),
            "block": problem.block.map(|n| n.0),
            "path": problem.path,
            "message": problem.message,
        })
    };
    let totals = &report.totals;
    json!({
        "image": name,
        "clean": report.is_clean(),
        "errors": report.errors,
        "left_out": report.left_out,
        "recovery_pending": report.recovery_pending,
        "files": totals.inodes_used,
        "inodes": totals.inodes,
        "directories": totals.directories,
        "blocks_used": totals.blocks_used,
        "blocks": totals.blocks,
        "fragmented_files": totals.fragmented,
        "problems": report.problems.iter().map(problem).collect::<Vec<_>>(),
    })
}

/// How far it is, on a terminal only.
struct Bar(Option<ProgressBar>);

impl Bar {
    fn new(quiet: bool) -> Self {
        let shown = !quiet && std::io::stderr().is_terminal();
        let style = ProgressStyle::with_template("{msg} [{bar:40}] {percent}%");
        let bar = shown.then(|| ProgressBar::new(1));
        if let (Some(bar), Ok(style)) = (&bar, style) {
            bar.set_style(style);
        }
        Self(bar)
    }

    fn tell(&self, progress: Progress) {
        if let Some(bar) = &self.0 {
            bar.set_message(format!("pass {}: {}", progress.pass, title(progress.pass)));
            bar.set_length(progress.steps.max(1));
            bar.set_position(progress.done);
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
