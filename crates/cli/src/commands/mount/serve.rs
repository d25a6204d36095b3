//! Mounts in the foreground: opens the image, mounts, answers requests until the mount ends,
//! closes.

use super::ending::{Ended, Ending, Signals};
use super::events::Events;
use super::old_server::open_after;
use super::options::Options;
use super::remount;
use super::report::{self, Reporter};
use super::utab::UtabEntry;
use super::{Args, FAILED, SYSTEM, background, memory, notify, usage};
use crate::disk::{self, Disk};
use crate::failure::{Failure, Result};
use crate::log::{self, Level};
use crate::overlay::{self, OverlaySpec};
use crate::show;
use crate::target::{ImageSpec, Place};
use nextent::inodes::{Inodes, ROOT_INO};
use nextent::{FileType, OpenOptions};
use nextent_device::{FileDevice, FileOptions};
use nextent_fuse::{
    Admission, Attachment, BlockSource, DeviceMount, MountError, MountFlag, RingMount, Served,
    Server, Setup, Transport,
};
use nextent_sync::Arc;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Serves until unmounted. All changes are durable when this returns without an error.
pub(super) fn run(args: &Args, options: &Options) -> Result<()> {
    let (image, place) = image_and_place(args, options)?;
    let name = place.shown().display().to_string();
    // Afterwards a relative path is useless, and a request to the mount would wait for this thread.
    let point = std::fs::canonicalize(args.point()).unwrap_or_else(|_| args.point().to_owned());
    // Before the image is marked as in use.
    DeviceMount::check(args.point()).map_err(|error| refused(&name, &error))?;
    let rings = over_rings(options).map_err(|error| refused(&name, &error))?;
    let events = Events::new(&name);
    let opened = open(args, (&image, &place), options, &events)?;
    let OpenVolume { volume, device, block_device, claim } = opened;
    let volume = Arc::new(volume);
    let (mut setup, served) = settings((args, options), &place, &volume, block_device);
    let server = Arc::new(Server::new(Arc::clone(&volume), served));
    // The kernel opens the device exclusively for the mount.
    drop(claim);
    let transport = if rings { "io_uring" } else { "/dev/fuse" };
    let reporter = Arc::new(Reporter::new(&server, &name, &point, transport));
    let signals = Signals::catch(Arc::clone(&reporter))?;
    let mut made = make(rings, &server, args, &setup);
    let mut claim = None;
    if let (Err(MountError::Refused(error)), Some(_)) = (&made, &setup.block_device)
        && error.kind() == ErrorKind::ResourceBusy
    {
        // Some kernels mount no device that a process has open for writing.
        claim = FileDevice::claim(&place.path).map_err(|error| failed(error.to_string()))?;
        setup.block_device = None;
        made = make(rings, &server, args, &setup);
    }
    let (attachment, serve) = match made {
        Ok(made) => made,
        Err(error) => {
            // The volume is unchanged, and the mount's error is the one to report.
            let _ = volume.close();
            return Err(refused(&name, &error));
        }
    };
    // For a block device umount(2) itself waits. The mount of a caller's device is the caller's.
    let entry = match setup.block_device {
        Some(_) => None,
        None if args.point().starts_with("/dev/fd") => None,
        None => UtabEntry::new(&setup.source, args.point()),
    };
    // Before the caller knows that it may ask.
    let sockets = attachment.device().map(|number| {
        let now = Options { rings: Some(rings), ..options.clone() };
        let image = remount::control::Image { device, mounted: setup.block_device.is_some() };
        let control = remount::control::listen(&server, image, now, number);
        (report::listen(reporter, number), control)
    });
    match args.notify_when_mounted {
        true => background::leave()?,
        false => log::find_journal(),
    }
    log::set_level(options.log_level.unwrap_or_else(log::default_level));
    events.mounted(&point.display().to_string(), transport, &volume);
    memory::watch(&volume, events.clone());
    notify::send_state(notify::READY);
    let ended = Ending::start(signals, serve).wait(&attachment);
    drop((entry, claim, sockets));
    notify::send_state(notify::STOPPING);
    let (served, closed) = match ended {
        Ended::Served(served) => (served, server.end()),
        Ended::Connected => (Ok(()), server.end_while_connected()),
    };
    served.map_err(|error| failed(format!("{name}: {error}")))?;
    closed.map_err(|error| failed(format!("{name}: close: {error}")))?;
    events.unmounted();
    Ok(())
}

/// The absolute path of the image. A descriptor of this process, as in `/proc/self/fd/3`, stays as
/// it is if the file cannot be reached by another path.
fn image_path(path: &Path) -> std::io::Result<PathBuf> {
    let id = |path: &Path| std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino()));
    let found = std::fs::canonicalize(path);
    let is_descriptor = ["/proc/self/fd", "/dev/fd"].iter().any(|dir| path.starts_with(dir));
    match found {
        Ok(found) if !is_descriptor || id(&found)? == id(path)? => Ok(found),
        _ if is_descriptor && id(path).is_ok() => Ok(path.to_owned()),
        other => other,
    }
}

/// The options of the mount and of the server.
fn settings(
    (args, options): (&Args, &Options),
    place: &Place,
    volume: &Inodes,
    block_device: Option<BlockSource>,
) -> (Setup, Served) {
    let admission = Admission {
        allow: options.allow,
        owner: rustix::process::getuid().as_raw(),
        everyone_may: options.fake_root,
        idmapped: options.idmapped,
    };
    let setup = Setup {
        source: options.source.clone().unwrap_or_else(|| place.shown().display().to_string()),
        threads: args.threads,
        insist: options.rings == Some(true),
        read_only: volume.is_read_only(),
        // With access control lists the kernel checks permissions in any case.
        acl: !options.no_acl && !options.fake_root,
        block_device,
        flags: options.flags.clone(),
    };
    let served = Served {
        access_times: remount::control::access_times(options),
        admission,
        minix_df: options.minix_df,
        // So that the server sees each read.
        uncached: options.uncached || options.flags.contains(&MountFlag::StrictAtime),
        device_offset: place.offset,
    };
    (setup, served)
}

/// Whether requests are to come over io_uring: by default, if the kernel offers it.
fn over_rings(options: &Options) -> std::result::Result<bool, MountError> {
    match options.rings {
        Some(true) => RingMount::offered(true).map(|()| true),
        Some(false) => Ok(false),
        None => Ok(RingMount::offered(false).is_ok()),
    }
}

/// A mount, and a function that serves it until its end.
type Made = (Arc<Attachment>, Box<dyn FnOnce() -> std::io::Result<()> + Send>);

/// Mounts over io_uring if `rings`, or over `/dev/fuse`.
fn make(
    rings: bool,
    server: &Arc<Server>,
    args: &Args,
    setup: &Setup,
) -> std::result::Result<Made, MountError> {
    match rings {
        true => mount::<RingMount>(server, args, setup),
        false => mount::<DeviceMount>(server, args, setup),
    }
}

fn mount<T: Transport + Send + 'static>(
    server: &Arc<Server>,
    args: &Args,
    setup: &Setup,
) -> std::result::Result<Made, MountError> {
    let mount = T::mount(Arc::clone(server), args.point(), setup)?;
    Ok((mount.attachment(), Box::new(move || mount.serve())))
}

/// A volume to serve.
struct OpenVolume {
    volume: Inodes,
    device: Arc<Disk>,
    /// The device of the volume, if the kernel is to mount that.
    block_device: Option<BlockSource>,
    /// Keeps other mounts away from that device until then.
    claim: Option<File>,
}

/// The image by its absolute path, and the bytes of the volume.
fn image_and_place(args: &Args, options: &Options) -> Result<(ImageSpec, Place)> {
    let path = args.image.path();
    let image = match OverlaySpec::parse(path.as_os_str()) {
        Ok(spec) if overlay::is_overlay(path.as_os_str()) => {
            let spec = spec.absolute();
            let spec = spec.map_err(|error| failed(format!("{}: {error}", show::path(path))))?;
            args.image.with_path(spec.text().into())
        }
        _ if disk::is_address(path.as_os_str()) => args.image.clone(),
        _ => {
            let path = image_path(args.image.path())
                .map_err(|error| failed(format!("{}: {error}", show::path(args.image.path()))))?;
            args.image.with_path(path)
        }
    };
    let place = image.resolve().map_err(|failure| failure.with_code(FAILED))?;
    let place = if image.is_part() { place } else { Place { offset: options.offset, ..place } };
    let (reconnect, timeout) = (options.reconnect, options.timeout);
    if !overlay::has_server(place.path.as_os_str()) && (!reconnect.is_zero() || timeout.is_some()) {
        let text = "the mount options reconnect and timeout need an export of an NBD server";
        return Err(failed(text.to_owned()));
    }
    let place = Place { reconnect, timeout, ..place };
    Ok((image, place))
}

fn open(
    args: &Args,
    (image, place): (&ImageSpec, &Place),
    options: &Options,
    events: &Events,
) -> Result<OpenVolume> {
    let file = FileOptions::new()
        .read_only(options.read_only || options.superblock.is_some())
        .fall_back_to_read_only(true)
        .allow_record_locks(args.caller_locks)
        .direct(options.direct);
    let mut device = open_after(place, &file).map_err(|error| failed(error.to_string()))?;
    let block_device = as_block_device(&place.path, options, &device);
    let claim = block_device.as_ref().and_then(|_| device.take_claim());
    let mut how = OpenOptions::new()
        .read_only(options.read_only)
        .no_recovery(options.no_recovery)
        .errors(options.errors)
        .on_damage({
            let events = events.clone();
            move |error| events.damage(error)
        })
        .discard(options.discard)
        .superblock(options.superblock)
        .cache_bytes(options.cache_bytes);
    if let Some(commit) = options.commit {
        how = how.commit_interval(commit);
    }
    let device = Arc::new(device);
    let opened = Inodes::open(device.clone(), &how);
    let volume = opened.map_err(|error| failed(format!("{image}: {}", image.explain(&error))))?;
    if let Some(why) = lacks_root(&volume) {
        // The volume is unchanged, and `why` is the error to report.
        let _ = volume.close();
        return Err(failed(format!("{}: {why}; check it with fsck -f", show::path(image))));
    }
    if options.journal_checksum && !has_checksums(&volume) {
        let _ = volume.close();
        let why = "journal_checksum: the file system has no metadata checksums";
        return Err(failed(format!("{}: {why}", show::path(image))));
    }
    if let Some(why) = volume.read_only_reason().filter(|_| !options.read_only) {
        log::write(Level::Warning, &format!("{}: mounted read-only: {why}", show::path(image)));
    }
    Ok(OpenVolume { volume, device, block_device, claim })
}

/// Whether the journal has checksums, which metadata checksums imply.
fn has_checksums(volume: &Inodes) -> bool {
    volume.superblock().features().has(nextent_ondisk::RoCompat::METADATA_CSUM)
}

/// Why the root directory is unusable, if it is. Linux refuses to mount such a volume, too.
fn lacks_root(volume: &Inodes) -> Option<String> {
    match volume.getattr(ROOT_INO) {
        Err(error) => Some(format!("the root directory cannot be read: {error}")),
        Ok(root) if root.kind != FileType::Directory => Some("the root is not a directory".into()),
        Ok(root) if root.links == 0 || root.size == 0 => {
            Some(format!("the root directory has {} links and {} bytes", root.links, root.size))
        }
        Ok(_) => None,
    }
}

/// The block device for the kernel to mount. Only root may do that; the table of mounts then shows
/// the device as the source.
fn as_block_device(image: &Path, options: &Options, device: &Disk) -> Option<BlockSource> {
    let may = rustix::process::geteuid().is_root() && options.source.is_none();
    let block_size = device.cache_block_size().filter(|_| may)?;
    Some(BlockSource { path: image.into(), block_size })
}

pub(super) fn failed(text: String) -> Failure {
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
