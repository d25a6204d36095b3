//! Keeps a writer of a file or block device away from all others, and others away from it.
//!
//! Three things stand between two users of the same bytes:
//!
//! | what | keeps out |
//! |---|---|
//! | `flock` of the file or device, and of the files and devices under it | other openers of this program |
//! | an open with `O_EXCL` of the block device, and of the loop devices over it | the kernel (mounts, swap, device-mapper, md), and programs that do the same |
//! | a look at mounts, swap files and record locks | kernel and programs that use a file without a loop device |
//!
//! The same bytes have several names: a file and the loop devices over it, a disk and its
//! partitions, a device and what it is made of ([`layers`]). Files are told apart by device and
//! inode, block devices by their number; paths are for messages only.
//!
//! A writer of a loop device locks the backing file exclusively. Below a partition, or a device
//! made of several, the lock is shared, as neighbours may be written at the same time; it still
//! keeps out a writer of the whole file.
//!
//! The locks and claims live as long as the device is open. What cannot be kept out: a loop device
//! that root makes over an image file later, and mounts.

mod layers;
mod users;

use super::{options::OpenError, sys};
use layers::{Loop, Node};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

pub use users::{User, Users};

/// The most layers that are looked through; loop devices over loop devices seldom have more
/// than two.
const LAYERS: usize = 8;

/// What is held while a device is open.
#[derive(Debug, Default)]
pub(super) struct Claim {
    /// Files and devices under the device, locked.
    under: Vec<File>,
    /// Loop devices over it, opened exclusively.
    over: Vec<File>,
    /// The device itself, opened exclusively.
    pub(super) own: Option<File>,
}

/// How a file is to be claimed.
pub(super) struct Wanted<'a> {
    pub(super) path: &'a Path,
    pub(super) writes: bool,
    /// A reader that takes no lock.
    pub(super) unlocked: bool,
    /// The bytes of a file that are used.
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Opens the block device at `path` for this process only; none where there is no claim to be had
/// without the right to open it.
///
/// # Errors
/// [`OpenError::Busy`] if the kernel or another process has it so.
pub(super) fn claim_device(path: &Path) -> Result<Option<File>, OpenError> {
    match open_exclusively(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            let device = std::fs::metadata(path).map(|meta| Node::of(&meta));
            let users = match device {
                Ok(Node::Block(device)) => users_of_busy(device),
                _ => Users::default(),
            };
            Err(OpenError::Busy { path: path.into(), users })
        }
        // The open for use says what is wrong.
        Err(_) => Ok(None),
    }
}

/// Locks `file`, which is open, and what holds the same bytes.
///
/// # Errors
/// What is in the way.
pub(super) fn claim(file: &File, meta: &Metadata, want: &Wanted<'_>) -> Result<Claim, OpenError> {
    let mut claim = Claim::default();
    if want.unlocked && !want.writes {
        return Ok(claim);
    }
    lock(file, want.writes, want)?;
    let node = Node::of(meta);
    let mut seen = vec![node];
    if let Node::Block(device) = node {
        claim.lock_under(device, want.writes, want, &mut seen)?;
    }
    if !want.writes {
        return Ok(claim);
    }
    let ranges = seen.clone().into_iter().map(|one| (one, 0, u64::MAX));
    for (one, start, end) in ranges {
        let (start, end) = if one == node { (want.start, want.end) } else { (start, end) };
        claim.take_over((one, start, end), want.path, &mut seen)?;
    }
    if let Node::File(..) = node {
        refuse_used_file(file, node, want.path)?;
    }
    Ok(claim)
}

fn lock(file: &File, writes: bool, want: &Wanted<'_>) -> Result<(), OpenError> {
    let path = want.path;
    match sys::try_lock(file, writes) {
        Ok(true) => Ok(()),
        Ok(false) => {
            let users = file.metadata().map(|meta| users::of_locked(path, &meta));
            Err(OpenError::Locked { path: path.into(), users: users.unwrap_or_default() })
        }
        Err(source) => Err(OpenError::Io { path: path.into(), source }),
    }
}

impl Claim {
    /// Locks what is under `device`; adds it to `seen`.
    fn lock_under(
        &mut self,
        device: u64,
        exclusive: bool,
        want: &Wanted<'_>,
        seen: &mut Vec<Node>,
    ) -> Result<(), OpenError> {
        if seen.len() > LAYERS {
            return Ok(());
        }
        if let Some(over) = Loop::of(device) {
            // A path that leads elsewhere by now says nothing of the file.
            let Some(node) = over.backing.filter(|node| Node::at(&over.path) == Some(*node)) else {
                return Ok(());
            };
            let Ok(file) = open_quietly(&over.path) else { return Ok(()) };
            lock(&file, exclusive, want)?;
            self.under.push(file);
            seen.push(node);
            return match node {
                Node::Block(device) => self.lock_under(device, exclusive, want, seen),
                Node::File(..) => Ok(()),
            };
        }
        let disk = layers::disk_of(device).into_iter();
        for below in disk.chain(layers::members_of(device)) {
            seen.push(Node::Block(below));
            self.lock_under(below, false, want, seen)?;
        }
        Ok(())
    }

    /// Opens exclusively each loop device over some bytes of `node`, so that the kernel uses none
    /// of them meanwhile; those in `seen` excepted.
    fn take_over(
        &mut self,
        (node, start, end): (Node, u64, u64),
        path: &Path,
        seen: &mut Vec<Node>,
    ) -> Result<(), OpenError> {
        let related = match node {
            Node::Block(device) => layers::family(device).into_iter().map(Node::Block).collect(),
            Node::File(..) => vec![node],
        };
        for over in Loop::all() {
            let is_over = over.backing.is_some_and(|backing| related.contains(&backing));
            let apart = over.end <= start || end <= over.start;
            let known = seen.contains(&Node::Block(over.device)) || seen.len() > LAYERS * 4;
            if !is_over || apart || known {
                continue;
            }
            seen.push(Node::Block(over.device));
            let device = layers::device_path(over.device);
            let busy =
                |users| OpenError::Attached { path: path.into(), device: device.clone(), users };
            match open_exclusively(&device) {
                Ok(file) => self.over.push(file),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    return Err(busy(users_of_busy(over.device)));
                }
                // Without the right to open it: what can be seen decides.
                Err(_) => match users::of_device(over.device) {
                    users if users.0.is_empty() => {}
                    users => return Err(busy(users)),
                },
            }
            self.take_over((Node::Block(over.device), 0, u64::MAX), path, seen)?;
        }
        Ok(())
    }
}

/// What uses a device that cannot be opened exclusively: the kernel, or a writer of this program,
/// which then has the device or the file under it locked.
fn users_of_busy(device: u64) -> Users {
    let found = users::of_busy_device(device);
    if !found.0.is_empty() {
        return found;
    }
    let under = Loop::of(device).map(|over| over.path);
    let place = under.unwrap_or_else(|| layers::device_path(device));
    std::fs::metadata(&place).map(|meta| users::of_locked(&place, &meta)).unwrap_or_default()
}

/// Refuses an image that is swap space, is mounted by another server, or has record locks, which
/// emulators of machines take.
fn refuse_used_file(file: &File, node: Node, path: &Path) -> Result<(), OpenError> {
    let found = users::of_file(node, path);
    if !found.0.is_empty() {
        return Err(OpenError::Used { path: path.into(), users: found });
    }
    if !sys::has_record_locks(file) {
        return Ok(());
    }
    let users = file.metadata().map(|meta| users::of_locked(path, &meta)).unwrap_or_default();
    Err(OpenError::Locked { path: path.into(), users })
}

fn open_exclusively(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_EXCL | libc::O_NONBLOCK).open(path)
}

fn open_quietly(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}
