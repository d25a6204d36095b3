//! `fsck`, with the exit codes of fsck(8).
//!
//! `-p`, `-a` and `-y` replay the journal, finish orphans, check, and print one line. A volume that
//! was checked without errors is marked clean and checked now. Other repairs are not implemented:
//! remaining errors give exit code 4. They claim a volume with multiple mount protection first.
//! Without them nothing is written, also not to the block of that protection.

use crate::disk::Disk;
use crate::failure::{Failure, Result, say};
use crate::show;
use crate::target::ImageSpec;
use clap::ArgAction;
use indicatif::{ProgressBar, ProgressStyle};
use nextent::OpenOptions;
use nextent::check::{
    At, CheckClaim, CheckOptions, CheckReport, Peek, Problem, Progress, Severity, check_with,
    is_journal, peek,
};
use nextent::inodes::Inodes;
use nextent_device::{BlockDevice, FileDevice, FileOptions};
use nextent_sync::Arc;
use serde_json::json;
use std::fs::{File, OpenOptions as HowToOpen};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

/// Errors were corrected.
const CORRECTED: u8 = 1;
/// Errors remain.
const ERRORS_LEFT: u8 = 4;
/// The check failed or was incomplete.
const OPERATIONAL: u8 = 8;

/// Options of e2fsck and fsck(8) that have no effect here.
const OTHERS: [char; 5] = ['t', 'T', 'd', 'F', 'k'];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Change nothing and list errors; the default
    #[arg(short, group = "how")]
    pub(crate) n: bool,
    /// Replay the journal, check, mark as clean if no error is found, and print the result on one
    /// line; other repairs are not implemented
    #[arg(short, group = "how")]
    pub(crate) p: bool,
    /// Same as -p
    #[arg(short, group = "how")]
    pub(crate) a: bool,
    /// Same as -p
    #[arg(short, group = "how")]
    pub(crate) y: bool,
    /// Check even if the image is marked as clean
    #[arg(short)]
    pub(crate) force: bool,
    /// Use the superblock at this block
    #[arg(short = 'b', value_name = "BLOCK")]
    pub(crate) superblock: Option<u64>,
    /// Block size in bytes, to find that superblock
    #[arg(short = 'B', value_name = "SIZE")]
    pub(crate) block_size: Option<u32>,
    /// Write progress to this open file descriptor, for programs; 0 draws a bar
    #[arg(short = 'C', value_name = "FD", allow_negative_numbers = true)]
    pub(crate) progress: Option<i32>,
    /// Also show what the file system contains
    #[arg(short)]
    pub(crate) verbose: bool,
    /// Device of an external journal, if it cannot be found by its UUID
    #[arg(short = 'j', value_name = "DEVICE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) external: Option<ImageSpec>,
    /// Tuning options of e2fsck, ignored
    #[arg(short = 'E', value_name = "WORDS", value_parser = tuning)]
    pub(crate) extended: Vec<String>,
    /// Options of other checkers, ignored
    #[arg(short = 'r', short_aliases = OTHERS, action = ArgAction::Count, hide = true)]
    pub(crate) other: u8,
    /// Print the version
    #[arg(short = 'V')]
    pub(crate) version: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The image
    #[arg(required_unless_present = "version", value_hint = clap::ValueHint::FilePath)]
    pub(crate) image: Option<ImageSpec>,
}

/// Accepts options of `-E` that do not change the result.
fn tuning(words: &str) -> std::result::Result<String, String> {
    const KNOWN: [&str; 8] = [
        "discard",
        "nodiscard",
        "no_optimize_extents",
        "optimize_extents",
        "inode_count_fullmap",
        "no_inode_count_fullmap",
        "readahead_kb",
        "fragcheck",
    ];
    let key = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
    match words.split(',').map(key).find(|key| !KNOWN.contains(&key.as_str())) {
        Some(key) => Err(format!("{key} is not known")),
        None => Ok(words.to_owned()),
    }
}

impl Args {
    /// Whether to repair without questions.
    fn repairs(&self) -> bool {
        self.p || self.a || self.y
    }

    /// The image; empty with `-V`.
    fn image(&self) -> ImageSpec {
        self.image.clone().unwrap_or_else(|| ImageSpec::whole(""))
    }

    /// The device of an external journal: the given one, else the block device with its UUID.
    fn journal(&self, state: &Peek) -> Result<Option<Disk>> {
        let options = FileOptions::new().read_only(true);
        if let Some(spec) = &self.external {
            return spec.open(options).map(Some).map_err(fail);
        }
        let Some(uuid) = state.external_journal else { return Ok(None) };
        let Ok(all) = std::fs::read_dir("/sys/class/block") else { return Ok(None) };
        let paths = all.flatten().map(|entry| Path::new("/dev").join(entry.file_name()));
        let mut devices =
            paths.filter_map(|path| FileDevice::open(&path, &options).ok().map(Disk::File));
        Ok(devices.find(|device| is_journal(device, uuid)))
    }

    fn options(&self) -> CheckOptions {
        let superblock = self.superblock.map(|block| At { block, block_size: self.block_size });
        let mut options = CheckOptions::default();
        options.superblock = superblock;
        options
    }
}

fn fail(error: impl ToString) -> Failure {
    Failure::new(error.to_string()).with_code(OPERATIONAL)
}

/// `nextent fsck`.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // Exit code 1 would mean that errors were corrected.
    let operational = |failure: Failure| match failure.code() {
        1 => failure.with_code(OPERATIONAL),
        _ => failure,
    };
    judge(args).map_err(operational)
}

/// Checks the image and prints the result.
fn judge(args: &Args) -> Result<ExitCode> {
    if args.version {
        say!("nextent {}", env!("CARGO_PKG_VERSION"));
        return Ok(ExitCode::SUCCESS);
    }
    let bar = Bar::new(args)?;
    let name = show::path(args.image());
    let named = |error: nextent::Error| {
        fail(format!("{name}: cannot be checked: {}", args.image().explain(&error)))
    };
    let mut state = peek(&*device(args)?, &args.options()).map_err(named)?;
    let repairs = args.repairs() && args.superblock.is_none();
    let claimed = if repairs && state.multi_mount { claim(args)? } else { None };
    if let Some(claimed) = &claimed {
        // Another node may have changed the volume before the claim.
        state = peek(&*claimed.device, &args.options()).map_err(named)?;
    }
    let recovered = match repairs && state.waits {
        true => recover(args, claimed.as_ref())?,
        false => None,
    };
    let mut device = match &claimed {
        Some(claimed) => Arc::clone(&claimed.device),
        None => self::device(args)?,
    };
    if !args.force && !args.json && args.superblock.is_none() {
        let state = peek(&*device, &args.options()).map_err(named)?;
        if state.clean {
            say!("{name}: {}clean, {}", words(recovered.as_deref()), counts(&state));
            end(args, claimed)?;
            return Ok(ExitCode::SUCCESS);
        }
    }
    let mut marks = claimed.is_some();
    if repairs && !marks {
        // The lock for reading excludes that for writing. A volume that cannot be opened for
        // writing, such as one that is mounted read-only, is checked and not marked.
        drop(device);
        let opened = writable(args).ok().flatten();
        marks = opened.is_some();
        device = opened.map_or_else(|| self::device(args), Ok)?;
    }
    let journal = args.journal(&state)?;
    let journal = journal.as_ref().map(|device| device as &dyn BlockDevice);
    let mut options = args.options();
    options.claimed = claimed.is_some();
    let report = check_with(Arc::clone(&device), journal, &options, &|now| bar.show(now));
    bar.end();
    let report = report.map_err(named)?;
    let code = code(&report);
    let sound = marks && code == 0 && !report.recovery_pending;
    let marked = sound && nextent::mark_checked(&device).map_err(named)?;
    end(args, claimed)?;
    if args.json {
        say!("{:#}", describe(&name, &report));
    } else if args.repairs() {
        one_line(&name, recovered.as_deref(), &report)?;
    } else {
        print(&name, args, &report)?;
    }
    let corrects = recovered.is_some() || marked;
    let corrected = if code == 0 && corrects { CORRECTED } else { 0 };
    Ok(ExitCode::from(code | corrected))
}

fn device(args: &Args) -> Result<Arc<dyn BlockDevice>> {
    let device = args.image().open(FileOptions::new().read_only(true)).map_err(fail)?;
    Ok(Arc::new(device))
}

/// A volume with multiple mount protection that no other node can open for writing.
struct Claimed {
    device: Arc<dyn BlockDevice>,
    claim: CheckClaim,
}

/// Claims a volume with multiple mount protection; `None` on a read-only disk.
fn claim(args: &Args) -> Result<Option<Claimed>> {
    let Some(device) = writable(args)? else { return Ok(None) };
    match nextent::check::claim(&device) {
        Ok(Some(claim)) => Ok(Some(Claimed { device, claim })),
        Ok(None) => Ok(None),
        Err(error) => {
            let image = args.image();
            Err(fail(format!("{}: {}", show::path(&image), image.explain(&error))))
        }
    }
}

/// Gives a claimed volume back.
fn end(args: &Args, claimed: Option<Claimed>) -> Result<()> {
    let Some(Claimed { claim, .. }) = claimed else { return Ok(()) };
    claim.end().map_err(|error| fail(format!("{}: {error}", show::path(args.image()))))
}

/// Opens the image for writing; `None` on a read-only disk, which is checked as it would be after
/// the replay.
fn writable(args: &Args) -> Result<Option<Arc<dyn BlockDevice>>> {
    match args.image().resolve()?.open(FileOptions::new()) {
        Ok(device) if device.is_read_only() => Ok(None),
        Ok(device) => Ok(Some(Arc::new(device))),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(None),
        Err(error) => Err(fail(error)),
    }
}

/// Replays the journal and finishes orphans; a text about it. `None` where that is impossible, so
/// that it is left to the next mount.
fn recover(args: &Args, claimed: Option<&Claimed>) -> Result<Option<String>> {
    let Some((device, options)) = opening(args, claimed)? else { return Ok(None) };
    let Ok(volume) = Inodes::open(device, &options) else { return Ok(None) };
    if volume.is_read_only() {
        return Ok(None);
    }
    let report = volume.recovery();
    volume
        .close()
        .map_err(|error| fail(format!("{}: close: {error}", show::path(args.image()))))?;
    let (transactions, orphans) = (report.transactions, report.orphans);
    Ok(Some(format!("recovered {transactions} transactions and {orphans} orphans")))
}

/// The device and the options to open the volume for changes; `None` on a read-only disk.
fn opening(
    args: &Args,
    claimed: Option<&Claimed>,
) -> Result<Option<(Arc<dyn BlockDevice>, OpenOptions)>> {
    if let Some(Claimed { device, claim }) = claimed {
        return Ok(Some((Arc::clone(device), OpenOptions::default().claimed(claim))));
    }
    Ok(writable(args)?.map(|device| (device, OpenOptions::default())))
}

fn words(recovered: Option<&str>) -> String {
    recovered.map_or(String::new(), |text| format!("{text}, "))
}

fn counts(state: &Peek) -> String {
    let (files, blocks) = (state.totals.inodes_used, state.totals.blocks_used);
    let (inodes, all) = (state.totals.inodes, state.totals.blocks);
    format!("{files}/{inodes} files, {blocks}/{all} blocks")
}

/// The exit code of a report.
fn code(report: &CheckReport) -> u8 {
    let left = if report.is_clean() { 0 } else { ERRORS_LEFT };
    left | if report.is_whole() { 0 } else { OPERATIONAL }
}

/// Prints the line that boot scripts show.
fn one_line(name: &str, recovered: Option<&str>, report: &CheckReport) -> Result<()> {
    let recovered = words(recovered);
    if report.is_clean() {
        say!("{name}: {recovered}{}", summary(report));
    } else {
        let errors = report.errors;
        say!(
            "{name}: {recovered}{errors} errors remain; fsck -fn lists them; there is no repair yet"
        );
    }
    Ok(())
}

/// What each pass checks.
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

fn print(name: &str, args: &Args, report: &CheckReport) -> Result<()> {
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
    if !report.is_clean() {
        say!("\n{name}: not clean, {} errors", report.errors);
    }
    if !report.is_whole() {
        say!("\n{name}: not all could be checked");
    }
    say!("{name}: {}", summary(report));
    if args.verbose {
        let totals = &report.totals;
        say!("{name}: {} directories, {} other files", totals.directories, totals.files);
    }
    Ok(())
}

/// The number of files and blocks in use.
fn summary(report: &CheckReport) -> String {
    let totals = &report.totals;
    let fragmented = totals.fragmented as f64 * 100.0 / totals.inodes_used.max(1) as f64;
    let (files, inodes) = (totals.inodes_used, totals.inodes);
    let (used, blocks) = (totals.blocks_used, totals.blocks);
    format!("{files}/{inodes} files ({fragmented:.1}% non-contiguous), {used}/{blocks} blocks")
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
        "whole": report.is_whole(),
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

/// Progress: a bar on a terminal, or lines for a program that gave a descriptor.
struct Bar {
    drawn: Option<ProgressBar>,
    lines: Option<File>,
    name: String,
}

impl Bar {
    fn new(args: &Args) -> Result<Self> {
        let name = show::path(args.image());
        let lines = match args.progress {
            Some(descriptor @ 1..) => Some(open(descriptor)?),
            _ => None,
        };
        let quiet = args.json || lines.is_some() || args.progress.is_some_and(|fd| fd < 0);
        let shown = !quiet && std::io::stderr().is_terminal();
        let style = ProgressStyle::with_template("{msg} [{bar:40}] {percent}%");
        let drawn = shown.then(|| ProgressBar::new(1));
        if let (Some(bar), Ok(style)) = (&drawn, style) {
            bar.set_style(style);
        }
        Ok(Self { drawn, lines, name })
    }

    fn show(&self, progress: Progress) {
        if let Some(bar) = &self.drawn {
            bar.set_message(format!("pass {}: {}", progress.pass, title(progress.pass)));
            bar.set_length(progress.steps.max(1));
            bar.set_position(progress.done);
        }
        if let Some(mut lines) = self.lines.as_ref().filter(|_| progress.pass > 0) {
            let Progress { pass, done, steps } = progress;
            let line = format!("{pass} {done} {} {}\n", steps.max(1), self.name);
            // The check goes on if the reader has closed the descriptor.
            let _ = lines.write_all(line.as_bytes());
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.drawn {
            bar.finish_and_clear();
        }
    }
}

/// Opens the file of an open `descriptor` of this process.
fn open(descriptor: i32) -> Result<File> {
    let path = format!("/proc/self/fd/{descriptor}");
    let opened = HowToOpen::new().write(true).open(&path);
    opened.map_err(|error| fail(format!("progress to descriptor {descriptor}: {error}")))
}
