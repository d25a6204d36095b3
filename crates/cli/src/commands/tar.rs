//! `tar`: streams trees out of and into an image.

use crate::failure::{Failure, Result};
use crate::image::{Image, Purpose, at, cred, umask};
use crate::location::Inside;
use crate::progress::Progress;
use crate::show;
use nextent::FileType;
use nextent::inodes::InodeNo;
use nextent_image::transfer::{
    ImageDir, ImageNode, ImageSink, ImageSource, Packing, Report, Unpacking, pack, unpack,
};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal};
use std::os::fd::AsFd;
use std::process::ExitCode;

/// Bytes of the buffer for the stream.
const BUFFER: usize = 1 << 20;

/// Stream a tree of an image as tar to stdout, or from stdin into an image
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("direction").required(true))]
pub(crate) struct Args {
    /// Write the tree at IMAGE:/PATH to stdout
    #[arg(short, long, group = "direction")]
    create: bool,
    /// Read a stream from stdin into the directory IMAGE:/PATH
    #[arg(short = 'x', long, group = "direction")]
    extract: bool,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
    /// Threads that read or write contents
    #[arg(long, value_name = "N", hide = true)]
    threads: Option<usize>,
    /// A path inside an image
    #[arg(value_name = "IMAGE:/PATH")]
    path: OsString,
}

/// `nextent tar`.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let inside = Inside::parse(&args.path)?;
    let failed = if args.create { create(args, &inside)? } else { extract(args, &inside)? };
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn workers(args: &Args) -> usize {
    args.threads.unwrap_or_else(nextent_sync::available_cores)
}

fn directory(image: &Image, inside: &Inside) -> Result<InodeNo> {
    let attr = at("tar", inside, image.volume.resolve(&cred(), &inside.path, true))?;
    match attr.kind {
        FileType::Directory => Ok(attr.ino),
        _ => Err(Failure::new(format!("tar {inside}: is not a directory"))),
    }
}

/// Whether an entry failed.
fn create(args: &Args, inside: &Inside) -> Result<bool> {
    if io::stdout().is_terminal() {
        return Err(Failure::usage(
            "tar: cannot write a tar stream to a terminal; redirect stdout",
        ));
    }
    let image = Image::of(inside, Purpose::Read)?;
    let ino = directory(&image, inside)?;
    let name = show::path(&inside.image);
    let source = ImageSource::new(&image.volume, &name, 0, true);
    let progress = Progress::new("tar", "standard output", args.quiet);
    let report = Report::new(&progress);
    let workers = workers(args);
    let packing = Packing { source: &source, report: &report, workers, skip_unreadable: false };
    // Not `Stdout`, which searches its input for line ends.
    let mut out =
        BufWriter::with_capacity(BUFFER, File::from(io::stdout().as_fd().try_clone_to_owned()?));
    let top = ImageNode::top(ino, &inside.path);
    if let Err(trouble) = pack(&packing, &top, &mut out) {
        report.fail(&inside.to_string(), &trouble);
    }
    Ok(report.failed())
}

/// Whether an entry failed.
fn extract(args: &Args, inside: &Inside) -> Result<bool> {
    if io::stdin().is_terminal() {
        return Err(Failure::usage("tar: nothing to read; redirect a tar stream to stdin"));
    }
    let image = Image::of(inside, Purpose::Change)?;
    let progress = Progress::new("tar", show::path(&inside.image), args.quiet);
    let report = Report::new(&progress);
    let done = directory(&image, inside).map(|ino| {
        let sink = ImageSink::new(&image.volume, 0, true);
        let implied = 0o777 & !umask();
        let unpacking = Unpacking {
            sink: &sink,
            report: &report,
            workers: workers(args),
            implied,
            layer: false,
            adjust: &(),
        };
        let mut input = BufReader::with_capacity(BUFFER, io::stdin().lock());
        if let Err(trouble) = unpack(&unpacking, ImageDir(ino), &mut input) {
            report.fail(&inside.to_string(), &trouble);
        }
    });
    let closed = image.close();
    done.and(closed).map(|()| report.failed())
}
