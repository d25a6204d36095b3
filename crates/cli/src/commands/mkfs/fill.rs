//! `mkfs -d`: the new file system is filled before anybody sees it.

use super::Args;
use crate::transfer::{
    FillSink, HostSource, ImageDir, Meta, Progress, Report, Unpacking, host_id, plan, unpack,
};
use nextent::mkfs::MkfsOptions;
use nextent::{Cred, DiskTime, OpenOptions, ROOT_INO, SetAttr, Volume};
use nextent_device::BlockDevice;
use nextent_sync::Arc;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// Buffer between us and a tar stream.
const BUFFER: usize = 1 << 20;

/// Where the contents come from.
pub(super) enum From {
    Dir(PathBuf),
    Tar(PathBuf, File),
    Stdin,
}

impl From {
    /// What `-d` names, before anything is written.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        if path.as_os_str() == "-" {
            return Ok(Self::Stdin);
        }
        let at = |error: std::io::Error| format!("{}: {error}", path.display());
        if std::fs::metadata(path).map_err(at)?.is_dir() {
            // A link to a directory is as good as the directory.
            return Ok(Self::Dir(std::fs::canonicalize(path).map_err(at)?));
        }
        Ok(Self::Tar(path.to_owned(), File::open(path).map_err(at)?))
    }
}

/// Fills the volume on `device`, just made by `options`; false if something failed and was told.
pub(super) fn fill(
    args: &Args,
    options: &MkfsOptions,
    device: Arc<dyn BlockDevice>,
    from: From,
) -> Result<bool, String> {
    let now = options.clock.map(|seconds| DiskTime::new(seconds as i64, 0));
    let open = OpenOptions { now, bypass_journal: true, ..OpenOptions::default() };
    let volume = Volume::open(device, &open).map_err(|error| error.to_string())?;
    let report = Report::new("mkfs", args.image.display().to_string(), Progress::new(args.quiet));
    let adjust = |meta: &mut Meta| {
        if let Some(now) = now {
            meta.mtime = meta.mtime.min(now);
            meta.atime = meta.mtime;
        }
    };
    let sink = FillSink::new(&volume);
    let workers = args.threads.unwrap_or_else(nextent_sync::available_cores);
    let top = ImageDir(ROOT_INO);
    let stream = |input: &mut dyn Read, shown: &str| {
        let unpacking = Unpacking { sink: &sink, report: &report, workers, adjust: &adjust };
        if let Err(trouble) = unpack(&unpacking, top, input) {
            report.fail(shown, &trouble);
        }
    };
    match from {
        From::Dir(dir) => {
            let image = std::fs::metadata(&args.image).map(|meta| host_id(&meta));
            let source = HostSource::new(true, image.into_iter().collect());
            plan((&source, dir), (&sink, top), &report, workers, &adjust);
        }
        From::Tar(path, file) => {
            stream(&mut BufReader::with_capacity(BUFFER, file), &path.display().to_string());
        }
        From::Stdin => {
            let input = std::io::stdin().lock();
            stream(&mut BufReader::with_capacity(BUFFER, input), "standard input");
        }
    }
    let (uid, gid) = options.extended.root_owner;
    if (uid, gid) != (0, 0) {
        let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        let done = volume.setattr(&Cred::root(), ROOT_INO, &set);
        done.map_err(|error| error.to_string())?;
    }
    volume.close().map_err(|error| error.to_string())?;
    Ok(!report.failed())
}
