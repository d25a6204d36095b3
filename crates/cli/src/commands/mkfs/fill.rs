//! `mkfs -d`: fills the new file system before any other process can use it.

use super::Args;
use crate::faked;
use crate::progress::Progress;
use crate::show;
use nextent::inodes::{Inodes, ROOT_INO, SetAttr};
use nextent::mkfs::{Filling, MkfsOptions, Plan};
use nextent::{Cred, DiskTime, OpenOptions};
use nextent_device::FileDevice;
use nextent_image::transfer::{
    FillSink, HostSource, ImageDir, Meta, Report, Unpacking, host_id, plan, unpack,
};
use nextent_sync::Arc;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// Bytes of the buffer for reading a tar stream.
const BUFFER: usize = 1 << 20;

/// The source of the contents.
pub(super) enum From {
    Dir(PathBuf),
    Tar(PathBuf, File),
    Stdin,
}

impl From {
    /// Opens the source that `-d` names, before anything is written.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        if path.as_os_str() == "-" {
            return Ok(Self::Stdin);
        }
        let at = |error: std::io::Error| format!("{}: {error}", show::path(path));
        if std::fs::metadata(path).map_err(at)?.is_dir() {
            faked::check()?;
            // Symbolic links to the directory are followed.
            return Ok(Self::Dir(std::fs::canonicalize(path).map_err(at)?));
        }
        Ok(Self::Tar(path.to_owned(), File::open(path).map_err(at)?))
    }
}

/// Makes the volume of `plan` on `device` and fills it with `from`; false if an entry failed, which
/// was reported.
pub(super) fn fill(
    args: &Args,
    options: &MkfsOptions,
    (plan, device): (Plan, FileDevice),
    from: From,
) -> Result<bool, String> {
    let progress = Progress::new("mkfs", show::path(&args.image), args.quiet);
    let report = Report::new(&progress);
    match from {
        From::Dir(dir) => from_dir(args, options, (plan, &device), dir, &report)?,
        From::Tar(path, file) => {
            plan.write(&device).map_err(|error| error.to_string())?;
            let input = &mut BufReader::with_capacity(BUFFER, file);
            from_tar(args, options, device, (input, &show::path(&path)), &report)?;
        }
        From::Stdin => {
            plan.write(&device).map_err(|error| error.to_string())?;
            let input = &mut BufReader::with_capacity(BUFFER, std::io::stdin().lock());
            from_tar(args, options, device, (input, "standard input"), &report)?;
        }
    }
    Ok(!report.failed())
}

fn workers(args: &Args) -> usize {
    args.threads.unwrap_or_else(nextent_sync::available_cores)
}

/// The owner of the root directory, if the user gave one: also 0:0 replaces that of the source.
fn root_owner(args: &Args, options: &MkfsOptions) -> Option<(u32, u32)> {
    let asked = |list: &String| list.split(',').any(|word| word.trim().starts_with("root_owner"));
    let owner = options.extended.root_owner;
    args.extended.iter().any(asked).then_some((owner.uid, owner.gid))
}

/// The latest time that files may have, if the user gave one.
fn clock(options: &MkfsOptions) -> Option<DiskTime> {
    options.clock.map(|seconds| DiskTime::new(i64::try_from(seconds).unwrap_or(i64::MAX), 0))
}

fn limit_times(meta: &mut Meta, now: Option<DiskTime>) {
    if let Some(now) = now {
        meta.mtime = meta.mtime.min(now);
        meta.atime = meta.mtime;
    }
}

fn from_dir(
    args: &Args,
    options: &MkfsOptions,
    (new, device): (Plan, &FileDevice),
    dir: PathBuf,
    report: &Report<'_>,
) -> Result<(), String> {
    let now = clock(options);
    let owner = root_owner(args, options);
    let adjust = |meta: &mut Meta, is_root: bool| {
        limit_times(meta, now);
        if let Some(owner) = owner.filter(|_| is_root) {
            (meta.uid, meta.gid) = owner;
        }
    };
    let image = std::fs::metadata(&args.image).map(|meta| host_id(&meta));
    let source = HostSource::new(true, image.into_iter().collect());
    let filling = Filling::new(new, device).map_err(|error| error.to_string())?;
    // The host's page cache lets one thread at a time write to a file.
    let one_writer = !args.direct && args.image.is_file();
    match plan((&source, dir), filling, report, (workers(args), one_writer), &adjust) {
        // The error that stopped it was reported.
        Err(_) if report.stopped() => Ok(()),
        done => done.map(drop).map_err(|error| error.to_string()),
    }
}

fn from_tar(
    args: &Args,
    options: &MkfsOptions,
    device: FileDevice,
    (input, shown): (&mut dyn Read, &str),
    report: &Report<'_>,
) -> Result<(), String> {
    let now = clock(options);
    let open = OpenOptions::new().now(now).bypass_journal(true);
    let volume = Inodes::open(Arc::new(device), &open).map_err(|error| error.to_string())?;
    let adjust = |meta: &mut Meta| limit_times(meta, now);
    let sink = FillSink::new(&volume);
    // Independent of the umask: the same stream makes the same image.
    let implied = 0o755;
    let workers = workers(args);
    let unpacking = Unpacking { sink: &sink, report, workers, implied, adjust: &adjust };
    if let Err(trouble) = unpack(&unpacking, ImageDir(ROOT_INO), input) {
        report.fail(shown, &trouble);
    }
    if let Some((uid, gid)) = root_owner(args, options) {
        let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        let done = volume.setattr(&Cred::root(), ROOT_INO, &set);
        done.map_err(|error| error.to_string())?;
    }
    volume.close().map_err(|error| error.to_string())
}
