//! In front: open, mount, answer until the mount ends, close.

use super::options::Options;
use super::utab::Entry;
use super::{Args, FAILED, SYSTEM, background, memory, notify, usage};
use crate::failure::{Failure, Result};
use nextent::{Design, OpenOptions, Volume};
use nextent_device::{FileDevice, FileOptions};
use nextent_fuse::{FuserMount, MountError, RingMount, Served, Server, Setup, Transport, Unmount};
use nextent_sync::{Arc, Duration, thread};
use std::path::Path;

/// How often a signal tries to unmount while files are in use.
const TRIES: Duration = Duration::from_millis(200);

/// Serves until unmounted. What was not durable is when this returns well.
pub(super) fn run(args: &Args, options: &Options, design: Design) -> Result<()> {
    let image = std::fs::canonicalize(&args.image)
        .map_err(|error| failed(format!("{}: {error}", args.image.display())))?;
    let name = image.display().to_string();
    // Before the image says that it is in use.
    FuserMount::check(&args.mountpoint).map_err(|error| refused(&name, &error))?;
    let rings = over_rings(options).map_err(|error| refused(&name, &error))?;
    let volume = Arc::new(open(&image, options, design)?);
    let setup = Setup {
        source: options.source.clone().unwrap_or_else(|| name.clone()),
        threads: args.threads,
        idle: options.idle.unwrap_or(true),
        insist: options.rings == Some(true),
        read_only: volume.is_read_only(),
        // With access control lists the kernel checks permissions whatever else is said.
        acl: !options.no_acl && !options.fake_root,
        allow: options.allow,
        flags: options.flags.clone(),
        everyone_may: options.fake_root,
    };
    let served = Served {
        read_only: setup.read_only,
        no_atime: options.no_atime,
        everyone_may: options.fake_root,
        minix_df: options.minix_df,
        uncached: options.uncached,
    };
    let server = Arc::new(Server::new(Arc::clone(&volume), served));
    let made = match rings {
        true => mount::<RingMount>(server, args, &setup),
        false => mount::<FuserMount>(server, args, &setup),
    };
    let (unmounter, serve) = match made {
        Ok(made) => made,
        Err(error) => {
            // Nobody used it; the reason for this is the one to tell.
            let _ = volume.close();
            return Err(refused(&name, &error));
        }
    };
    end_on_signals(unmounter)?;
    let entry = Entry::new(&setup.source, &args.mountpoint);
    if args.tell_when_mounted {
        background::leave()?;
    }
    memory::watch(&volume);
    notify::tell(notify::READY);
    let served = serve();
    drop(entry);
    notify::tell(notify::STOPPING);
    let abandoned = volume.abandon();
    let closed = volume.close();
    served.map_err(|error| failed(format!("{name}: {error}")))?;
    let ended = abandoned.and(closed);
    ended.map_err(|error| failed(format!("{name}: close: {error}")))
}

/// Whether requests shall come over io_uring: if the kernel offers that, unless told otherwise.
fn over_rings(options: &Options) -> std::result::Result<bool, MountError> {
    match options.rings {
        Some(true) => RingMount::offered(true).map(|()| true),
        Some(false) => Ok(false),
        None => Ok(RingMount::offered(false).is_ok()),
    }
}

/// What ends a mount, and what serves it until then.
type Made = (Unmount, Box<dyn FnOnce() -> std::io::Result<()>>);

fn mount<T: Transport + 'static>(
    server: Arc<Server>,
    args: &Args,
    setup: &Setup,
) -> std::result::Result<Made, MountError> {
    let mut mount = T::mount(server, &args.mountpoint, setup)?;
    Ok((mount.unmounter(), Box::new(move || mount.serve())))
}

fn open(image: &Path, options: &Options, design: Design) -> Result<Volume> {
    let file = FileOptions::new()
        .read_only(options.read_only)
        .fall_back_to_read_only(true)
        .direct(options.direct)
        .offset(options.offset);
    let device = FileDevice::open(image, &file).map_err(|error| failed(error.to_string()))?;
    let mut how = OpenOptions {
        read_only: options.read_only,
        no_recovery: options.no_recovery,
        errors: options.errors,
        cache_bytes: options.cache_bytes,
        design,
        ..OpenOptions::default()
    };
    if let Some(commit) = options.commit {
        how.commit_interval = commit;
    }
    let opened = Volume::open(Arc::new(device), &how);
    let volume = opened.map_err(|error| failed(format!("{}: {error}", image.display())))?;
    if let Some(why) = volume.read_only_reason().filter(|_| !options.read_only) {
        eprintln!("nextent: {}: mounted for reading only: {why}", image.display());
    }
    Ok(volume)
}

fn failed(text: String) -> Failure {
    Failure::new(text).with_code(FAILED)
}

fn refused(image: &str, error: &MountError) -> Failure {
    let text = format!("{image}: {error}");
    match error {
        MountError::NoFuse(_) | MountError::NoRings(_) => Failure::new(text).with_code(SYSTEM),
        MountError::Refused(why) if why.kind() == std::io::ErrorKind::PermissionDenied => {
            usage(text)
        }
        _ => failed(text),
    }
}

/// SIGTERM, SIGINT and SIGHUP unmount, as soon as nobody uses a file.
fn end_on_signals(mut unmount: Unmount) -> Result<()> {
    let handler = move || {
        while unmount().is_err() {
            thread::sleep(TRIES);
        }
    };
    ctrlc::set_handler(handler).map_err(|error| failed(error.to_string()))
}
