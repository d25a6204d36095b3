//! `mount`: serve an image at a directory, in front or in the background.
//!
//! In the background means: this program starts itself once more, which mounts, says so through a
//! pipe and lets go of the terminal; the first one ends with the exit status of that. So the mount
//! is there, or the reason why not was printed, when the command returns.

mod options;
mod unmount;

use crate::failure::{Context, Failure, Result};
use clap::Args as ClapArgs;
use nextent::{Design, OpenOptions, Volume};
use nextent_device::{BlockDevice, FileDevice, FileOptions};
use nextent_fuse::{Fuser, MountError, Plan, Serving, Transport};
use nextent_sync::Arc;
use options::Options;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

pub(crate) use unmount::run as unmount;

/// mount(8)'s code for a mount that failed.
const FAILED: u8 = 32;
/// mount(8)'s code for arguments that make no sense.
const USAGE: u8 = 1;
/// What the one in the background says when it is mounted.
const READY: &str = "mounted";

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// The image: a file or a block device
    pub(crate) image: PathBuf,
    /// The directory to mount it on
    pub(crate) mountpoint: PathBuf,
    /// Options, as fuse2fs and mount(8) have them: ro, rw, norecovery, offset=, errors=, commit=,
    /// acl, noacl, allow_other, direct, dev, suid, noexec ...
    #[arg(short, value_name = "OPTS", value_delimiter = ',')]
    pub(crate) options: Vec<String>,
    /// Stay in front
    #[arg(short = 'f')]
    pub(crate) foreground: bool,
    /// Threads that answer requests [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// A design, for measuring, see `nextent designs`
    #[arg(long, value_name = "NAME")]
    pub(crate) design: Option<String>,
    /// Say when it is mounted, then let go of the terminal
    #[arg(long, hide = true)]
    pub(crate) announce: bool,
}

/// `nextent mount`.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let options = Options::parse(&args.options).map_err(|failure| failure.with_code(USAGE))?;
    if args.foreground {
        serve(args, &options).map_err(|failure| failure.with_code(FAILED))
    } else {
        start(args).map_err(|failure| failure.with_code(FAILED))
    }
}

/// Starts the one in the background and waits until it is mounted.
fn start(args: &Args) -> Result<ExitCode> {
    let mut words: Vec<OsString> = vec!["mount".into(), "-f".into(), "--announce".into()];
    if !args.options.is_empty() {
        words.extend(["-o".into(), args.options.join(",").into()]);
    }
    if let Some(threads) = args.threads {
        words.extend(["--threads".into(), threads.to_string().into()]);
    }
    if let Some(design) = &args.design {
        words.extend(["--design".into(), design.into()]);
    }
    words.extend(["--".into(), args.image.clone().into(), args.mountpoint.clone().into()]);
    let own = std::env::current_exe().context(|| "the program itself".to_owned())?;
    let mut child = Command::new(own)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context(|| "starting the server".to_owned())?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    if line.trim_end() == READY {
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait()?;
    // The reason is on stderr.
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED)))
}

/// Mounts and serves until it is unmounted.
fn serve(args: &Args, options: &Options) -> Result<ExitCode> {
    let name = args.image.display().to_string();
    check_mountpoint(args)?;
    let volume = Arc::new(open(args, options)?);
    let done = mount_and_serve(args, options, &volume);
    let closed = volume.close().context(|| format!("{name}: close"));
    done.and(closed).map(|()| ExitCode::SUCCESS)
}

fn open(args: &Args, options: &Options) -> Result<Volume> {
    let name = args.image.display().to_string();
    let file = FileOptions::new()
        .read_only(options.read_only)
        .fall_back_to_read_only(!options.read_write)
        .direct(options.direct)
        .offset(options.offset);
    let device = FileDevice::open(&args.image, &file).map_err(|e| Failure::new(e.to_string()))?;
    let design = match &args.design {
        Some(name) => Design::named(name)
            .map_err(|_| Failure::usage(format!("unknown design {name}; see `nextent designs`")))?,
        None => Design::default(),
    };
    let defaults = OpenOptions::default();
    let wanted = OpenOptions {
        read_only: options.read_only || device.is_read_only(),
        no_recovery: options.no_recovery,
        errors: options.errors,
        commit_interval: options.commit.unwrap_or(defaults.commit_interval),
        design,
        ..defaults
    };
    let volume = Volume::open(Arc::new(device), &wanted).context(|| name.clone())?;
    if let Some(why) = volume.read_only_reason() {
        if options.read_write {
            return Err(Failure::new(format!("{name}: cannot be mounted for writing: {why}")));
        }
        eprintln!("nextent: {name}: mounted read-only: {why}");
    }
    Ok(volume)
}

fn mount_and_serve(args: &Args, options: &Options, volume: &Arc<Volume>) -> Result<()> {
    let source = args.image.canonicalize().unwrap_or_else(|_| args.image.clone());
    let mut plan = Plan::new(args.mountpoint.clone(), source.display().to_string());
    plan.read_only = volume.is_read_only();
    plan.allow_other = options.allow_other;
    plan.lists = options.lists;
    plan.options.clone_from(&options.kernel);
    plan.threads = args.threads.map_or(plan.threads, usize::from);
    let mounted = Fuser.mount(Arc::clone(volume), &plan).map_err(told)?;
    let stopper = mounted.stopper();
    ctrlc::set_handler(move || {
        if let Err(error) = stopper.stop() {
            eprintln!("nextent: unmount: {error}");
        }
    })
    .context(|| "signals".to_owned())?;
    if args.announce {
        let mut out = std::io::stdout();
        writeln!(out, "{READY}").and_then(|()| out.flush())?;
        let_go().context(|| "letting go of the terminal".to_owned())?;
    }
    mounted.serve().map_err(told)
}

fn check_mountpoint(args: &Args) -> Result<()> {
    let place = args.mountpoint.display();
    let meta = std::fs::metadata(&args.mountpoint).context(|| place.to_string())?;
    if meta.is_dir() { Ok(()) } else { Err(Failure::new(format!("{place}: not a directory"))) }
}

fn told(error: MountError) -> Failure {
    Failure::new(error.to_string())
}

/// Leaves the caller's session and directory, and its terminal.
fn let_go() -> std::io::Result<()> {
    use rustix::stdio;
    // Already at the head of a session is as good.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/")?;
    let nothing = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    stdio::dup2_stdin(&nothing)?;
    stdio::dup2_stdout(&nothing)?;
    stdio::dup2_stderr(&nothing)?;
    Ok(())
}
