//! The kernel's offer of io_uring: a parameter that root may set. The kernel reads it when a
//! connection begins.
//!
//! A mount that must use io_uring turns the parameter on where it is off, until kernel and server
//! have agreed, and off again. Such mounts hold a lock meanwhile, so that none turns the parameter
//! off while another needs it. The lock is on a file of root's, since any user could lock the
//! parameter itself. A mount that finds the parameter on does not lock; if it is turned off too
//! early, the kernel answers that it has no queues.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use rustix::fs::{FlockOperation, flock};

use crate::setup::MountError;

/// The parameter that turns queues on in the kernel.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// The file that mounts lock to turn the parameter on and off.
const LOCK: &str = "/run/nextent-io_uring.lock";

/// The offer. If it was turned on for this mount, dropping this turns it off.
#[derive(Debug)]
pub(crate) enum Offer {
    /// The parameter was on.
    Standing,
    /// This mount turned the parameter on. The lock is none where its file cannot be made.
    Made(File, Option<File>),
}

impl Offer {
    /// Takes the offer; with `insist`, turns it on if necessary.
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

    /// Checks whether [`Self::take`] would succeed. Changes nothing.
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

/// Waits for other mounts that turn the parameter on; none where the file cannot be made.
fn lock() -> Option<File> {
    let mut how = File::options();
    let file = how.write(true).create(true).truncate(false).mode(0o600).open(LOCK).ok()?;
    flock(&file, FlockOperation::LockExclusive).ok()?;
    Some(file)
}

/// Opens the parameter, for writing only if it may have to be written.
fn open(insist: bool) -> io::Result<File> {
    let file = File::open(PARAMETER).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            io::Error::other("the kernel does not have it (needs Linux 6.14)")
        }
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
