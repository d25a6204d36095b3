//! Mounts and unmounts: by mount(2), or by fusermount3 for users without root.

use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use crate::admission::Admission;
use crate::refusal;
use crate::setup::{MountError, MountFlag, Setup};

/// Says why there can be no mount at `point`, as far as that is known beforehand.
pub(crate) fn check(point: &Path) -> Result<(), MountError> {
    if given_device(point).is_some() {
        return Ok(());
    }
    check_point(point)?;
    check_device()
}

/// Mounts at `point`; the open `/dev/fuse` of the new connection.
pub(crate) fn mount(point: &Path, setup: &Setup, admission: Admission) -> io::Result<File> {
    if let Some(number) = given_device(point) {
        return take_device(number);
    }
    let point = std::fs::canonicalize(point)?;
    match mount_as_root(&point, setup, admission) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            mount_as_user(&point, setup, admission)
        }
        done => done,
    }
}

/// The number of the open `/dev/fuse` that a caller gives as the mount point `/dev/fd/N`, by
/// libfuse's convention. The caller has mounted it.
fn given_device(point: &Path) -> Option<i32> {
    point.to_str()?.strip_prefix("/dev/fd/")?.parse().ok()
}

fn take_device(number: i32) -> io::Result<File> {
    /// The number of `/dev/fuse`.
    const FUSE: (u32, u32) = (10, 229);
    let file = File::from(nextent_fuse_sys::duplicate(number)?);
    let device = rustix::fs::fstat(&file)?.st_rdev;
    if (rustix::fs::major(device), rustix::fs::minor(device)) != FUSE {
        let text = format!("descriptor {number} is no open /dev/fuse");
        return Err(io::Error::new(ErrorKind::InvalidInput, text));
    }
    Ok(file)
}

/// How to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detach {
    /// Only if no file is in use.
    Unused,
    /// At once. The connection lasts until no file is in use.
    Lazy,
    /// At once, and all requests fail. Only root can force.
    Forced,
}

/// Unmounts `point`.
///
/// # Errors
/// Those of the kernel or of fusermount3.
pub fn unmount(point: &Path, how: Detach) -> io::Result<()> {
    let (flags, letters) = match how {
        Detach::Unused => (UnmountFlags::empty(), "-u"),
        Detach::Lazy => (UnmountFlags::DETACH, "-uz"),
        Detach::Forced => (UnmountFlags::FORCE | UnmountFlags::DETACH, "-uz"),
    };
    match rustix::mount::unmount(point, flags | UnmountFlags::NOFOLLOW) {
        // Unmounted already.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(Errno::PERM) => {
            let helper = Command::new("fusermount3").arg(letters).arg("--").arg(point).output()?;
            match helper.status.success() {
                true if how == Detach::Forced => Err(Errno::PERM.into()),
                true => Ok(()),
                false => {
                    let text = String::from_utf8_lossy(&helper.stderr).trim().to_owned();
                    Err(io::Error::other(text))
                }
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Explains why the kernel or the helper refused to mount.
pub(crate) fn refused(error: &io::Error, point: &Path) -> MountError {
    MountError::Refused(refusal::mounting(error, point))
}

fn check_point(point: &Path) -> Result<(), MountError> {
    let bad = |error| MountError::Point(point.into(), error);
    let meta = std::fs::metadata(point).map_err(bad)?;
    if meta.is_dir() { Ok(()) } else { Err(bad(ErrorKind::NotADirectory.into())) }
}

/// Opens the device and closes it again, so that its error is not taken for another.
fn check_device() -> Result<(), MountError> {
    let how = std::fs::OpenOptions::new().read(true).write(true).open(refusal::DEVICE);
    how.map(|_| ()).map_err(|error| MountError::NoFuse(refusal::device(&error)))
}

/// FUSE's mount options, except the descriptor.
fn mount_options(admission: Admission) -> String {
    let mut words = Vec::new();
    if !admission.everyone_may {
        words.push("default_permissions");
    }
    if admission.opens_to_all() {
        words.push("allow_other");
    }
    words.join(",")
}

/// The bits that a flag sets and clears, and its word for the helper; empty if the helper does not
/// know it.
fn flag(flag: MountFlag) -> (MountFlags, MountFlags, &'static str) {
    let none = MountFlags::empty();
    match flag {
        MountFlag::Suid => (none, MountFlags::NOSUID, "suid"),
        MountFlag::NoSuid => (MountFlags::NOSUID, none, "nosuid"),
        MountFlag::Dev => (none, MountFlags::NODEV, "dev"),
        MountFlag::NoDev => (MountFlags::NODEV, none, "nodev"),
        MountFlag::Exec => (none, MountFlags::NOEXEC, "exec"),
        MountFlag::NoExec => (MountFlags::NOEXEC, none, "noexec"),
        MountFlag::NoAtime => (MountFlags::NOATIME, none, "noatime"),
        MountFlag::RelAtime => (MountFlags::RELATIME, none, ""),
        MountFlag::StrictAtime => (MountFlags::STRICTATIME, none, ""),
        MountFlag::NoDirAtime => (MountFlags::NODIRATIME, none, ""),
        MountFlag::LazyTime => (MountFlags::LAZYTIME, none, ""),
        MountFlag::Sync => (MountFlags::SYNCHRONOUS, none, "sync"),
        MountFlag::DirSync => (MountFlags::DIRSYNC, none, "dirsync"),
    }
}

/// Mounts as root. The kernel opens a block device exclusively, forwards `sync(2)` (Linux 6.18) and
/// waits in `umount(2)` until the server has closed the volume.
fn mount_as_root(point: &Path, setup: &Setup, admission: Admission) -> io::Result<File> {
    let file = File::options().read(true).write(true).open("/dev/fuse")?;
    let mode = std::fs::metadata(point)?.permissions().mode();
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    let data = format!(
        "fd={},rootmode={mode:o},user_id={},group_id={},{}{}",
        file.as_raw_fd(),
        uid.as_raw(),
        gid.as_raw(),
        setup.block_device.as_ref().map_or(String::new(), |device| {
            // The current size: another would empty the device's cache.
            format!("blksize={},", device.block_size)
        }),
        mount_options(admission)
    );
    let data = std::ffi::CString::new(data.trim_end_matches(','))?;
    // The defaults of fusermount3.
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    if setup.read_only {
        flags |= MountFlags::RDONLY;
    }
    for (on, off, _) in setup.flags.iter().map(|word| flag(*word)) {
        flags = (flags - off) | on;
    }
    let (kind, source) = match &setup.block_device {
        Some(device) => ("fuseblk.nextent", device.path.as_path()),
        None => ("fuse.nextent", Path::new(&setup.source)),
    };
    rustix::mount::mount(source, point, kind, flags, Some(data.as_c_str()))?;
    Ok(file)
}

fn mount_as_user(point: &Path, setup: &Setup, admission: Admission) -> io::Result<File> {
    // Inherited by the helper, which sends the descriptor back.
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::empty(),
        None,
    )?;
    let mut options = format!("fsname={},subtype=nextent", escaped(&setup.source));
    options.push_str(if setup.read_only { ",ro" } else { ",rw" });
    let words = setup.flags.iter().map(|word| flag(*word).2);
    for word in words.filter(|word| !word.is_empty()) {
        options.push(',');
        options.push_str(word);
    }
    let words = mount_options(admission);
    if !words.is_empty() {
        options.push(',');
        options.push_str(&words);
    }
    let mut helper = Command::new("fusermount3");
    helper.arg("-o").arg(options).arg("--").arg(point);
    helper.env("_FUSE_COMMFD", theirs.as_raw_fd().to_string());
    let child = helper.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    drop(theirs);
    let received = receive(&ours);
    let output = child.wait_with_output()?;
    match received? {
        Some(fd) if output.status.success() => Ok(File::from(fd)),
        _ => {
            let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let kind = match text.contains("user_allow_other") {
                true => ErrorKind::PermissionDenied,
                false => ErrorKind::Other,
            };
            Err(io::Error::new(kind, text))
        }
    }
}

/// A name within a list of options.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace(',', "\\,")
}

/// Receives a descriptor over `socket`; none if its other end is closed first.
fn receive(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut sent = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(socket, parts, &mut sent, RecvFlags::CMSG_CLOEXEC)?;
    Ok(sent.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    }))
}
