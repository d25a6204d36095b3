//! `touch`.

use super::change::create;
use super::date;
use super::each::each;
use crate::failure::{Context, Failure, Result};
use crate::image::{at, cred};
use crate::location::Location;
use crate::scope::Scope;
use crate::show;
use nextent::inodes::{SetAttr, SetTime};
use nextent::{DiskTime, Error};
use nextent_num::must_fit;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;

/// Arguments of `touch`.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Set the access time only
    #[arg(short = 'a')]
    access: bool,
    /// Set the modification time only
    #[arg(short = 'm')]
    modification: bool,
    /// Do not make missing files
    #[arg(short = 'c', long)]
    no_create: bool,
    /// Change a symbolic link itself; make no files
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// This time instead of the present
    #[arg(short, long, value_name = "DATE", group = "time", allow_hyphen_values = true)]
    date: Option<String>,
    /// This time instead of the present
    #[arg(short = 't', value_name = "[[CC]YY]MMDDhhmm[.ss]", group = "time")]
    stamp: Option<String>,
    /// The times of this file, of the host or inside an image
    #[arg(short, long, value_name = "FILE", group = "time")]
    reference: Option<OsString>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// A path inside an image
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
}

/// `nextent touch`.
pub(crate) fn run(args: &Args, scope: Scope<'_>) -> Result<()> {
    let (access, modification) = times(args, scope)?;
    let both = args.access == args.modification;
    let set = SetAttr {
        atime: (both || args.access).then_some(access),
        mtime: (both || args.modification).then_some(modification),
        ..SetAttr::default()
    };
    let follow = !args.no_dereference;
    each(scope, &args.paths, |volume, inside| {
        let found = match volume.resolve(&cred(), &inside.path, follow) {
            Err(Error::NotFound) if args.no_create => return Ok(()),
            // A path with a slash at its end names a directory, which is not made.
            Err(Error::NotFound) if follow && !inside.path.ends_with(b"/") => {
                create(volume, inside)
            }
            found => found,
        };
        let attr = at("touch", inside, found)?;
        at("touch", inside, volume.setattr(&cred(), attr.ino, &set)).map(drop)
    })
}

/// Access and modification time to set.
fn times(args: &Args, scope: Scope<'_>) -> Result<(SetTime, SetTime)> {
    let bad = |text: &str, what: &str| {
        Failure::usage(format!("touch: `{}` is no {what}; see --help", show::line(text)))
    };
    if let Some(text) = &args.date {
        let time = date::date(text).ok_or_else(|| bad(text, "date"))?;
        return Ok((time, time));
    }
    if let Some(text) = &args.stamp {
        let time = date::stamp(text).ok_or_else(|| bad(text, "stamp"))?;
        return Ok((time, time));
    }
    match &args.reference {
        Some(file) => reference(file, scope, !args.no_dereference),
        None => Ok((SetTime::Now, SetTime::Now)),
    }
}

/// The times of a file.
fn reference(file: &OsStr, scope: Scope<'_>, follow: bool) -> Result<(SetTime, SetTime)> {
    let inside = match scope.location(file)? {
        Location::Image(inside) => inside,
        Location::Host(path) => {
            let found =
                if follow { std::fs::metadata(&path) } else { std::fs::symlink_metadata(&path) };
            let meta = found.context(|| format!("touch {}", show::path(&path)))?;
            let time =
                |seconds, nanos: i64| SetTime::At(DiskTime { seconds, nanos: must_fit(nanos) });
            return Ok((
                time(meta.atime(), meta.atime_nsec()),
                time(meta.mtime(), meta.mtime_nsec()),
            ));
        }
    };
    scope.read(&inside, |volume| {
        let attr = at("touch", &inside, volume.resolve(&cred(), &inside.path, follow))?;
        Ok((SetTime::At(attr.atime), SetTime::At(attr.mtime)))
    })
}
