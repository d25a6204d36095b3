//! The program as tools of e2fsprogs and as fuse2fs: `mke2fs`, `dumpe2fs`, `e2fsck` and others, by
//! the name of the program or as the first argument of `nextent`.
//!
//! Other programs call these tools, so that arguments, streams, field names and exit codes are
//! those of e2fsprogs. Options that cannot be honoured are refused by name.

mod conf;
mod defaults;
mod dumpe2fs;
mod e2fsck;
mod e2label;
mod e2mmpstatus;
mod fields;
#[cfg(all(feature = "mount", target_os = "linux"))]
mod fuse2fs;
mod getopt;
mod groups;
pub(crate) mod mke2fs;
mod resize2fs;
mod tune2fs;

pub(crate) use mke2fs::mount_options;

use crate::failure::{Failure, Result, complain};
use crate::target::ImageSpec;
use crate::{log, show};
use getopt::Words;
use nextent::check::{At, CheckOptions, Overview};
use nextent_device::FileOptions;
use nextent_ondisk::Superblock;
use nextent_ondisk::jbd2::JournalSuperblock;
use nextent_sync::Arc;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// The release of e2fsprogs whose interface these names have. Callers compare this number.
const RELEASE: &str = "1.47.0";

/// A tool that this program stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Dumpe2fs,
    E2fsck,
    E2label,
    E2mmpstatus,
    #[cfg(all(feature = "mount", target_os = "linux"))]
    Fuse2fs,
    Mke2fs,
    Resize2fs,
    Tune2fs,
}

impl Tool {
    fn named(name: &str) -> Option<Self> {
        match name {
            "dumpe2fs" => Some(Self::Dumpe2fs),
            "e2fsck" | "fsck.ext2" | "fsck.ext3" | "fsck.ext4" => Some(Self::E2fsck),
            "e2label" => Some(Self::E2label),
            "e2mmpstatus" => Some(Self::E2mmpstatus),
            #[cfg(all(feature = "mount", target_os = "linux"))]
            "fuse2fs" | "fuse4fs" => Some(Self::Fuse2fs),
            "resize2fs" => Some(Self::Resize2fs),
            "tune2fs" => Some(Self::Tune2fs),
            "mke2fs" | "mkfs.ext2" | "mkfs.ext3" | "mkfs.ext4" => Some(Self::Mke2fs),
            _ => None,
        }
    }
}

/// A call of a tool.
struct Call {
    tool: Tool,
    name: String,
    args: Vec<OsString>,
}

impl Call {
    /// The tool that a process with these arguments is called as, if it is.
    fn of(args: &[OsString]) -> Option<Self> {
        let (program, args) = args.split_first()?;
        let base = Path::new(program).file_name()?.to_str()?.to_owned();
        if let Some(tool) = Tool::named(&base) {
            return Some(Self { tool, name: base, args: args.to_vec() });
        }
        let (name, args) = args.split_first()?;
        let name = name.to_str()?.to_owned();
        let tool = Tool::named(&name)?;
        Some(Self { tool, name, args: args.to_vec() })
    }
}

/// The arguments of `nextent mount` for those of fuse2fs.
#[cfg(all(feature = "mount", target_os = "linux"))]
pub(crate) fn mount_words(args: &[OsString]) -> Option<Vec<OsString>> {
    let call = Call::of(args)?;
    (call.tool == Tool::Fuse2fs).then(|| fuse2fs::words(&call.args))
}

/// Runs the tool that this process was called as, if it was. Mounts by fuse2fs go on as `nextent
/// mount`.
pub(crate) fn run() -> Option<ExitCode> {
    let args: Vec<OsString> = std::env::args_os().collect();
    let call = Call::of(&args)?;
    log::set_name(&call.name);
    let done = match call.tool {
        Tool::Dumpe2fs => dumpe2fs::run(&call),
        Tool::E2fsck => e2fsck::run(&call),
        Tool::E2label => e2label::run(&call),
        Tool::E2mmpstatus => e2mmpstatus::run(&call),
        #[cfg(all(feature = "mount", target_os = "linux"))]
        Tool::Fuse2fs => fuse2fs::answered(&call)?,
        Tool::Mke2fs => mke2fs::run(&call),
        Tool::Resize2fs => resize2fs::run(&call),
        Tool::Tune2fs => tune2fs::run(&call),
    };
    Some(done.unwrap_or_else(Failure::report))
}

/// What `tune2fs -l` prints of an image.
pub(crate) fn listing(image: &ImageSpec) -> Result<String> {
    tune2fs::listing(image)
}

/// A time in seconds since 1970 in the form of ctime(3), in UTC.
pub(crate) fn calendar(seconds: u64) -> String {
    fields::time(seconds)
}

/// The line with the version, which e2fsprogs' tools print first.
fn version(tool: &str) -> String {
    format!("{tool} {RELEASE} (nextent {})", env!("CARGO_PKG_VERSION"))
}

/// Writes lines to standard error as they are. The caller escapes names.
pub(crate) fn to_stderr(text: &str) {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// The failure of a command line, after `usage` was printed.
fn misused(usage: &str, code: u8) -> Failure {
    to_stderr(usage);
    Failure::reported(code)
}

/// Splits the arguments of a call; an error prints the usage.
fn split(call: &Call, letters: &str, usage: &str) -> Result<Words> {
    getopt::split(&call.args, letters).map_err(|error| {
        to_stderr(&format!("{}: {}", call.name, show::line(&error)));
        misused(usage, 1)
    })
}

/// Reads the superblock of an image, at `at` or at the start.
///
/// # Errors
/// A line that names the image.
pub(crate) fn superblock(
    image: &ImageSpec,
    at: Option<At>,
) -> std::result::Result<Overview, String> {
    let how = FileOptions::new().read_only(true).unlocked(true);
    let device = image.open(how).map_err(|failure| failure.to_string())?;
    let mut options = CheckOptions::default();
    options.superblock = at;
    let read = Overview::read(Arc::new(device), &options);
    read.map_err(|error| format!("{image}: {}", image.explain(&error)))
}

/// The superblocks of an image that is an external journal.
fn external_journal(image: &OsStr) -> Option<(Superblock, JournalSuperblock)> {
    let how = FileOptions::new().read_only(true).unlocked(true);
    let device = ImageSpec::parse(image).ok()?.open(how).ok()?;
    nextent::check::read_journal(&device)
}

/// The same with the messages of e2fsprogs.
fn overview(image: &OsStr, at: Option<At>) -> Result<Overview> {
    let opened = ImageSpec::parse(image).and_then(|image| superblock(&image, at));
    opened.map_err(|error| {
        complain(&error);
        to_stderr("Couldn't find valid filesystem superblock.");
        Failure::reported(1)
    })
}

/// The image that an argument names.
fn spec(image: &OsStr) -> Result<ImageSpec> {
    ImageSpec::parse(image).map_err(Failure::new)
}

/// Text of an argument.
fn utf8<'a>(name: &str, value: &'a OsStr) -> Result<&'a str> {
    let shown = || Failure::new(format!("{name}: {} is not UTF-8", show::path(value)));
    value.to_str().ok_or_else(shown)
}
