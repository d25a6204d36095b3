//! The kernel's offer of io_uring: a parameter that root may set, looked at by the kernel when a
//! connection begins.
//!
//! Who is told to mount this way or not at all turns the offer on where it is off, for as long as
//! kernel and server agree on it; then it is as before. Such mounts hold a lock meanwhile, lest one
//! takes from another what it counts on: on a file of root's, since any user could hold one on the
//! parameter's own. Who only finds the offer on, and loses it again, is answered by the kernel that
//! there is none.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use rustix::fs::{FlockOperation, flock};

use crate::transport::MountError;

/// What turns queues on in the kernel.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Locked by mounts that turn the parameter on and off.
const LOCK: &str = "/run/nextent-io_uring.lock";

/// An offer that stands; one that was made for this mount only until it is dropped.
#[derive(Debug)]
pub(crate) enum Offer {
    /// Somebody's choice for the machine.
    Standing,
    /// The parameter, and the lock if there is a place for it.
    Made(File, Option<File>),
}

impl Offer {
    /// Takes the offer; with `insist` it is made if need be.
    ///
    /// # Errors
    /// [`MountError::NoRings`].
    pub(crate) fn take(insist: bool) -> Result<Self, MountError> {
        let lock = if insist { lock() } else { None };
        let parameter = open(insist).map_err(none)?;
        if is_on(&parameter) {
            return Ok(Self::Standing);
        }
        if !insist {
            return Err(none(off()));
        }
        parameter.write_all_at(b"Y", 0).map_err(none)?;
        Ok(Self::Made(parameter, lock))
    }

    /// Whether it could be taken.
    ///
    /// # Errors
    /// [`MountError::NoRings`].
    pub(crate) fn check(insist: bool) -> Result<(), MountError> {
        let parameter = open(insist).map_err(none)?;
        match insist || is_on(&parameter) {
            true => Ok(()),
            false => Err(none(off())),
        }
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if let Self::Made(parameter, _lock) = self {
            let _ = parameter.write_all_at(b"N", 0);
        }
    }
}

/// Waits for others that turn the parameter on; none where there is no place for a lock.
fn lock() -> Option<File> {
    let mut how = File::options();
    let file = how.write(true).create(true).truncate(false).mode(0o600).open(LOCK).ok()?;
    flock(&file, FlockOperation::LockExclusive).ok()?;
    Some(file)
}

/// Opens the parameter, for writing only if it may have to be written.
fn open(insist: bool) -> io::Result<File> {
    let file = File::open(PARAMETER).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other("the kernel has none (Linux 6.14)"),
        _ => error,
    })?;
    if !insist || is_on(&file) {
        return Ok(file);
    }
    File::options().read(true).write(true).open(PARAMETER).map_err(|_| off())
}

fn is_on(parameter: &File) -> bool {
    let mut text = [0; 1];
    parameter.read_at(&mut text, 0).is_ok_and(|n| n == 1) && text == *b"Y"
}

fn none(why: io::Error) -> MountError {
    MountError::NoRings(why)
}

fn off() -> io::Error {
    io::Error::other(format!("the kernel does not offer it (set {PARAMETER} to Y)"))
}
