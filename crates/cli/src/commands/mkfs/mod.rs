//! `nextent mkfs`: mke2fs's options, passed to [`nextent::mkfs`].

pub(crate) mod attributes;
mod free;
mod journal_device;
mod options;
pub(crate) mod report;
mod sources;
pub(crate) mod values;

use crate::failure::{Failure, complain};
use crate::progress::Progress;
use crate::show;
use crate::size::Size;
use crate::target::{ImageSpec, Place};
use clap::Parser;
use nextent::Foreign;
use nextent::mkfs::{Fit, JournalPlan, MkfsOptions, Owner, is_journal};
use nextent_device::{BlockDevice, FileOptions};
use nextent_image::{BuildError, Built, ImageBuilder};
use nextent_num::to_u64;
use nextent_ondisk::superblock::{SUPER_OFFSET, SUPER_SIZE};
use nextent_ondisk::{Geometry, Superblock};
use nextent_sync::Arc;
use std::ffi::OsString;
use std::fmt;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// mke2fs's options; mke2fs(8) describes them.
#[derive(Debug, Parser)]
#[command(about = "Make an ext2, ext3 or ext4 file system, with mke2fs's options")]
#[command(after_long_help = options::HELP)]
#[command(group = clap::ArgGroup::new("filled").multiple(true))]
pub(crate) struct Args {
    /// Image file (created if SIZE or -d is given), block device or partition
    #[arg(value_hint = clap::ValueHint::FilePath)]
    image: ImageSpec,
    /// Size with k, m, g or t; a plain number counts blocks (of -b, or of 1 KiB); default: that of
    /// the image, or of the contents of a new one (--free)
    size: Option<Size>,
    /// Block size in bytes, 1024 to 65536
    #[arg(short = 'b', value_name = "BYTES")]
    block_size: Option<Size>,
    /// Bypass the host's page cache
    #[arg(short = 'D')]
    direct: bool,
    /// Fill it from a directory, a tar file (plain, gzip or zstd), or a tar stream on stdin (-);
    /// several are layers in order
    #[arg(short = 'd', value_name = "DIR|TAR|-", group = "filled")]
    pub(crate) contents: Vec<PathBuf>,
    /// Fill it from the image of a container: an OCI layout (directory or tar file) or an archive
    /// of docker save, with the name of one of several images; -d adds layers
    #[arg(long, value_name = "LAYOUT[:NAME]", group = "filled")]
    oci: Option<OsString>,
    /// What a kernel does on errors: continue, remount-ro or panic
    #[arg(short = 'e', value_name = "WHAT", default_value = "continue")]
    on_error: String,
    /// Extended options, separated by commas; --help lists the keys
    #[arg(short = 'E', value_name = "KEY=VALUE,...")]
    extended: Vec<String>,
    /// Do not ask before an existing file system is overwritten
    #[arg(short = 'F', action = clap::ArgAction::Count)]
    force: u8,
    /// Make it as small as its contents allow, with so much space free: bytes with k, m or g, or a
    /// percentage of all blocks; reserved blocks (-m) are free; default for a new image without
    /// SIZE: 10%, at least 16m
    #[arg(long, value_name = "PERCENT%|BYTES", value_parser = free::parse)]
    #[arg(conflicts_with = "size", requires = "filled")]
    free: Option<Fit>,
    /// Blocks per group
    #[arg(short = 'g', value_name = "BLOCKS")]
    blocks_per_group: Option<u32>,
    /// Groups per flex group, a power of two
    #[arg(short = 'G', value_name = "GROUPS")]
    flex_groups: Option<u32>,
    /// Bytes of the file system per inode
    #[arg(short = 'i', value_name = "BYTES")]
    bytes_per_inode: Option<Size>,
    /// Inode size in bytes
    #[arg(short = 'I', value_name = "BYTES")]
    inode_size: Option<u32>,
    /// Make a journal for any -t
    #[arg(short = 'j')]
    journal: bool,
    /// Journal options: size=MIB, location=BLOCK, fast_commit_size=KIB
    #[arg(short = 'J', value_name = "KEY=VALUE,...")]
    journal_options: Vec<String>,
    /// Do not discard the device first
    #[arg(short = 'K', hide = true)]
    keep: bool,
    /// Label, up to 16 bytes
    #[arg(short = 'L', value_name = "LABEL", default_value = "", hide_default_value = true)]
    label: String,
    /// Percentage of blocks that only root may use
    #[arg(short = 'm', value_name = "PERCENT", default_value_t = 5.0)]
    reserved: f64,
    /// Directory to record as the last mount point
    #[arg(short = 'M', value_name = "DIR", default_value = "", hide_default_value = true)]
    last_mounted: String,
    /// Show what would be made, and make nothing
    #[arg(short = 'n')]
    pub(crate) dry_run: bool,
    /// Number of inodes
    #[arg(short = 'N', value_name = "COUNT")]
    inodes: Option<u64>,
    /// Creator to record: linux, hurd, masix, freebsd or lites
    #[arg(short = 'o', value_name = "OS", default_value = "linux", hide_default_value = true)]
    creator: String,
    /// Features to add, or with ^ to remove, separated by commas; none removes all; --help lists
    /// the names
    #[arg(short = 'O', value_name = "FEATURE,...")]
    features: Vec<String>,
    /// Print errors only
    #[arg(short = 'q')]
    quiet: bool,
    /// Revision of the format, 0 or 1
    #[arg(short = 'r', value_name = "REVISION", default_value_t = 1, hide_default_value = true)]
    revision: u32,
    /// Write superblocks only (refused)
    #[arg(short = 'S', hide = true)]
    superblocks_only: bool,
    /// Type: ext2, ext3 or ext4
    #[arg(short = 't', value_name = "TYPE", default_value = "ext4")]
    fs_type: String,
    /// Usage types: small, floppy, big, huge, news, largefile, largefile4, hurd
    #[arg(short = 'T', value_name = "USAGE,...")]
    usage: Vec<String>,
    /// UUID, or random, clear or time
    #[arg(short = 'U', value_name = "UUID")]
    uuid: Option<String>,
    /// Print more
    #[arg(short = 'v')]
    pub(crate) verbose: bool,
    #[command(flatten)]
    attributes: attributes::AttributeArgs,
    /// Threads that copy
    #[arg(long, value_name = "N", hide = true)]
    threads: Option<usize>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// The program that is called in place of `nextent mkfs`.
    #[arg(skip)]
    pub(crate) front: Option<Box<dyn Front>>,
}

/// A program with arguments of this command, and defaults and output of its own.
pub(crate) trait Front: fmt::Debug {
    /// Completes the options of a file system of `bytes` by its defaults.
    fn complete(&self, options: &mut MkfsOptions, bytes: u64) -> Result<(), String>;

    /// Its defaults for `-E`, which the arguments follow.
    fn extended(&self, options: &MkfsOptions, bytes: u64) -> Result<Vec<String>, String>;

    /// Prints a new external journal, or one that would be made.
    fn show_journal(&self, args: &Args, plan: &JournalPlan) -> Result<(), Failure>;

    /// Prints a new file system, or one that would be made.
    fn show(&self, args: &Args, sb: &Superblock, geometry: &Geometry) -> Result<(), Failure>;
}

impl Args {
    /// The image file or block device.
    pub(crate) fn path(&self) -> &Path {
        self.image.path()
    }
}

/// Makes the file system that `args` describe. The exit code shows whether all of `-d` was copied.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    // This thread takes the first per-thread slot, so that its allocations start at the same block
    // in each run.
    let _ = nextent_sync::current_slot();
    let command = if args.front.is_some() { "" } else { "mkfs " };
    let at = |text: String| Failure::new(format!("{command}{}: {text}", show::path(&args.image)));
    if args.superblocks_only {
        return Err(at("-S is refused: it writes superblocks over existing data; use fsck".into()));
    }
    let (mut options, offset) = options::from(args).map_err(at)?;
    let place = place(args, offset).map_err(at)?;
    if let Some(front) = &args.front {
        let bytes = device_size(&place, &options).map_err(at)?;
        options::complete(args, &**front, &mut options, bytes).map_err(at)?;
    }
    if is_journal(&options).map_err(|error| at(error.to_string()))? {
        let plan = journal_device::make(args, &place, &options).map_err(at)?;
        return journal_device::show(args, &plan);
    }
    let builder = builder(args, &place, options).map_err(at)?;
    let progress = || Progress::new("mkfs", show::path(&args.image), args.quiet);
    if args.dry_run {
        let plan = match no_file(&place, true).map_err(at)? {
            Some(device) => builder.plan_device(&*device),
            None => builder.plan(&place.path, &progress()),
        };
        return match plan {
            Ok(plan) => {
                report::show(args, plan.superblock(), plan.geometry())?;
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => failed(&place, &error).map_err(at),
        };
    }
    let draft = match no_file(&place, false).map_err(at)? {
        Some(device) => builder.prepare_device(device),
        None => builder.prepare(&place.path, &progress()),
    };
    let draft = match draft {
        Ok(draft) => draft,
        Err(error) => return failed(&place, &error).map_err(at),
    };
    for warning in draft.plan().warnings() {
        complain(&format!("{command}{}: warning: {warning}", show::path(&args.image)));
    }
    if !confirmed(args, draft.device()).map_err(at)? {
        return Err(at("left unchanged".into()));
    }
    let made = draft.write(&progress());
    match made {
        Ok(made) => finished(args, &made)?,
        Err(error) => return failed(&place, &error).map_err(at),
    }
    Ok(ExitCode::SUCCESS)
}

/// What the arguments ask for.
fn builder<'a>(
    args: &'a Args,
    place: &Place,
    options: MkfsOptions,
) -> Result<ImageBuilder<'a>, String> {
    let root_owner = options::root_owner(args, &options);
    let root_mode = options::asked(args, "root_perms").then_some(options.extended.root_mode);
    let clock = options.clock;
    // A device that is not a file has its size and offset already.
    let mut builder = ImageBuilder::new(options).direct(args.direct);
    if place.is_file() {
        builder = builder.offset(place.offset);
    }
    if let Some(part) = &place.part {
        builder = builder.part(part, place.size);
    }
    let mut builder = args.attributes.apply(builder, clock)?;
    if let Some(threads) = args.threads {
        builder = builder.threads(threads);
    }
    if let Some(contents) = sources::open(&args.contents, args.oci.as_deref())? {
        builder = builder.contents(contents);
        // Also 0:0, as an option, replaces the owner that the source has.
        if let Some(Owner { uid, gid }) = root_owner {
            builder = builder.root_owner(uid, gid);
        }
        if let Some(mode) = root_mode {
            builder = builder.root_mode(mode);
        }
        builder = builder.xattrs(!options::asked(args, "no_copy_xattrs"));
    }
    if let Some(fit) = args.free {
        builder = builder.fit(fit);
    }
    Ok(builder)
}

/// The export of a server, or the overlay, to make the file system on, if the argument names one.
fn no_file(place: &Place, read_only: bool) -> Result<Option<Arc<dyn BlockDevice>>, String> {
    if place.is_file() {
        return Ok(None);
    }
    let device = place.open(FileOptions::new().read_only(read_only));
    let device = device.map_err(|error| without_name(place, &error.to_string()))?;
    if !read_only && device.is_read_only() {
        return Err("the server allows no writes".into());
    }
    Ok(Some(Arc::new(device)))
}

/// Prints what was made.
fn finished(args: &Args, made: &Built) -> Result<(), Failure> {
    if made.skipped() > 0 {
        let text = format!("{} entries skipped", made.skipped());
        complain(&format!("mkfs {}: {text}", show::path(&args.image)));
    }
    report::show(args, made.superblock(), made.geometry())
}

/// The exit code, or the message, of a build that failed.
fn failed(place: &Place, error: &BuildError) -> Result<ExitCode, String> {
    match error {
        // Each failure was printed.
        BuildError::Incomplete { .. } => Ok(ExitCode::FAILURE),
        error => Err(without_path(place, error)),
    }
}

/// The error without the path of the image, which the caller adds.
fn without_path(place: &Place, error: &BuildError) -> String {
    without_name(place, &error.to_string())
}

fn without_name(place: &Place, text: &str) -> String {
    let path = format!("{}: ", place.shown().display());
    text.strip_prefix(&path).unwrap_or(text).to_owned()
}

/// The bytes to make the file system in: those that the argument names, or from `offset` on.
fn place(args: &Args, offset: u64) -> Result<Place, String> {
    let place = args.image.resolve().map_err(|failure| failure.to_string())?;
    if offset > 0 && args.image.is_part() {
        return Err("-E offset= and @PART exclude each other".into());
    }
    Ok(if args.image.is_part() { place } else { Place { offset, ..place } })
}

fn device_size(place: &Place, options: &MkfsOptions) -> Result<u64, String> {
    if let Some(size) = options.size {
        return Ok(size);
    }
    let how = FileOptions::new().read_only(true).unlocked(true);
    Ok(place.open(how).map_err(|error| error.to_string())?.size())
}

/// What the device contains, if that is recognised.
fn holds(device: &dyn BlockDevice) -> Result<Option<String>, String> {
    let mut bytes = [0; SUPER_SIZE];
    if device.size() >= SUPER_OFFSET + to_u64(SUPER_SIZE) {
        device.read_at(SUPER_OFFSET, &mut bytes).map_err(|error| error.to_string())?;
    }
    if let Ok(old) = Superblock::read(&bytes) {
        let label = show::name(old.label().as_bytes());
        return Ok(Some(format!("a file system labelled '{label}'")));
    }
    let read = &mut |at, buf: &mut [u8]| device.read_at(at, buf).is_ok();
    Ok(match Foreign::identify(device.size(), read) {
        Foreign::Format { name, .. } => Some(name.to_owned()),
        Foreign::Disk(table) => Some(format!("a partition table ({})", table.form)),
        Foreign::Backup { .. } => Some("a file system whose first superblock is lost".to_owned()),
        _ => None,
    })
}

/// Asks a user at a terminal before existing contents are overwritten; whether to go on. As with
/// mke2fs, a program is not asked.
fn confirmed(args: &Args, device: &dyn BlockDevice) -> Result<bool, String> {
    let person = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if args.force > 0 || !person {
        return Ok(true);
    }
    let Some(old) = holds(device)? else { return Ok(true) };
    let name = show::path(&args.image);
    let question = format!("{name} contains {old}\nProceed anyway? (y,N) ");
    let mut out = std::io::stdout();
    let asked = out.write_all(question.as_bytes()).and_then(|()| out.flush());
    asked.map_err(|error| error.to_string())?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(|error| error.to_string())?;
    Ok(answer.trim().eq_ignore_ascii_case("y"))
}
