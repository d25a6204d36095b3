//! In front: open, mount, answer until the mount ends, close.

use super::options::Options;
use super::utab::Entry;
use super::{Args, FAILED, SYSTEM, background, memory, notify, usage};
use crate::failure::{Failure, Result, complain};
use crate::show;
use nextent::inodes::{Inodes, ROOT_INO};
use nextent::{FileType, OpenOptions};
use nextent_device::{FileDevice, FileOptions};
use nextent_fuse::{
    Admission, BlockSource, DirectMount, FuserMount, MountError, RingMount, Served, Server, Setup,
    Transport, Unmount,
};
use nextent_sync::{Arc, Duration, thread};
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

/// How often a signal tries to unmount while files are in use.
const TRIES: Duration = Duration::from_millis(200);

/// Serves until unmounted. What was not durable is when this returns well.
pub(super) fn run(args: &Args, options: &Options) -> Result<()> {
    let image = std::fs::canonicalize(&args.image)
        .map_err(|error| failed(format!("{}: {error}", show::path(&args.image))))?;
    let name = image.display().to_string();
    // Before the image says that it is in use.
    FuserMount::check(&args.mountpoint).map_err(|error| refused(&name, &error))?;
    let rings = over_rings(options).map_err(|error| refused(&name, &error))?;
    let Opened { volume, block_device, claim } = open(&image, options)?;
    let volume = Arc::new(volume);
    let (mut setup, served) = settings(options, &name, &volume, block_device, args.threads);
    let server = Arc::new(Server::new(Arc::clone(&volume), served));
    // The kernel claims the device for the mount.
    drop(claim);
    let mut made = make(rings, &server, args, &setup);
    let mut claim = None;
    if let (Err(MountError::Refused(error)), Some(_)) = (&made, &setup.block_device)
        && error.kind() == ErrorKind::ResourceBusy
    {
        // Some kernels mount no device that a process has open for writing.
        claim = FileDevice::claim(&image).map_err(|error| failed(error.to_string()))?;
        setup.block_device = None;
        made = make(rings, &server, args, &setup);
    }
    let (unmounter, serve) = match made {
        Ok(made) => made,
        Err(error) => {
            // Nobody used it; the reason for this is the one to tell.
            let _ = volume.close();
            return Err(refused(&name, &error));
        }
    };
    end_on_signals(unmounter)?;
    // With a block device umount(2) itself waits.
    let entry = match setup.block_device {
        Some(_) => None,
        None => Entry::new(&setup.source, &args.mountpoint),
    };
    if args.tell_when_mounted {
        background::leave()?;
    }
    memory::watch(&volume);
    notify::tell(notify::READY);
    let served = serve();
    drop((entry, claim));
    notify::tell(notify::STOPPING);
    let ended = server.end();
    served.map_err(|error| failed(format!("{name}: {error}")))?;
    ended.map_err(|error| failed(format!("{name}: close: {error}")))
}

/// How to mount, and how to serve.
fn settings(
    options: &Options,
    name: &str,
    volume: &Inodes,
    block_device: Option<BlockSource>,
    threads: Option<usize>,
) -> (Setup, Served) {
    let admission = Admission {
        allow: options.allow,
        owner: rustix::process::getuid().as_raw(),
        everyone_may: options.fake_root,
    };
    let setup = Setup {
        source: options.source.clone().unwrap_or_else(|| name.to_owned()),
        threads,
        idle: options.idle.unwrap_or(true),
        insist: options.rings == Some(true),
        read_only: volume.is_read_only(),
        // With access control lists the kernel checks permissions whatever else is said.
        acl: !options.no_acl && !options.fake_root,
        admission,
        block_device,
        flags: options.flags.clone(),
    };
    let served = Served {
        read_only: setup.read_only,
        no_atime: options.no_atime,
        admission,
        minix_df: options.minix_df,
        uncached: options.uncached,
    };
    (setup, served)
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

/// Mounts over the transport that suits.
fn make(
    rings: bool,
    server: &Arc<Server>,
    args: &Args,
    setup: &Setup,
) -> std::result::Result<Made, MountError> {
    match rings {
        true => mount::<RingMount>(server, args, setup),
        false if setup.is_ours() => mount::<DirectMount>(server, args, setup),
        false => mount::<FuserMount>(server, args, setup),
    }
}

fn mount<T: Transport + 'static>(
    server: &Arc<Server>,
    args: &Args,
    setup: &Setup,
) -> std::result::Result<Made, MountError> {
    let mut mount = T::mount(Arc::clone(server), &args.mountpoint, setup)?;
    Ok((mount.unmounter(), Box::new(move || mount.serve())))
}

/// A volume that is to be served.
struct Opened {
    volume: Inodes,
    /// The device that it is on, if the kernel shall mount that.
    block_device: Option<BlockSource>,
    /// What keeps the kernel off that device until then.
    claim: Option<File>,
}

fn open(image: &Path, options: &Options) -> Result<Opened> {
    let file = FileOptions::new()
        .read_only(options.read_only)
        .fall_back_to_read_only(true)
        .direct(options.direct)
        .offset(options.offset);
    let mut device = FileDevice::open(image, &file).map_err(|error| failed(error.to_string()))?;
    let block_device = as_block_device(image, options, &device);
    let claim = block_device.as_ref().and_then(|_| device.take_claim());
    let mut how = OpenOptions::new()
        .read_only(options.read_only)
        .no_recovery(options.no_recovery)
        .errors(options.errors)
        .cache_bytes(options.cache_bytes);
    if let Some(commit) = options.commit {
        how = how.commit_interval(commit);
    }
    let opened = Inodes::open(Arc::new(device), &how);
    let volume = opened.map_err(|error| failed(format!("{}: {error}", show::path(image))))?;
    if let Some(why) = lacks_root(&volume) {
        // Nothing was changed; the reason for this is the one to tell.
        let _ = volume.close();
        return Err(failed(format!("{}: {why}; check it with fsck -f", show::path(image))));
    }
    if let Some(why) = volume.read_only_reason().filter(|_| !options.read_only) {
        complain(&format!("{}: mounted for reading only: {why}", show::path(image)));
    }
    Ok(Opened { volume, block_device, claim })
}

/// Why nothing on the volume could be reached: Linux does not mount it then.
fn lacks_root(volume: &Inodes) -> Option<String> {
    match volume.getattr(ROOT_INO) {
        Err(error) => Some(format!("the root directory cannot be read: {error}")),
        Ok(root) if root.kind != FileType::Directory => Some("the root is no directory".into()),
        Ok(root) if root.links == 0 || root.size == 0 => {
            Some(format!("the root directory has {} links and {} bytes", root.links, root.size))
        }
        Ok(_) => None,
    }
}

/// The device as the kernel is to mount it: only root may, and the table of mounts then shows the
/// device as the source.
fn as_block_device(image: &Path, options: &Options, device: &FileDevice) -> Option<BlockSource> {
    let may = rustix::process::geteuid().is_root() && options.source.is_none();
    let block_size = device.cache_block_size().filter(|_| may)?;
    Some(BlockSource { path: image.into(), block_size })
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
